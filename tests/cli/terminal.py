"""Progress on a terminal: one bar that stays on its line, whatever the width."""
import fcntl
import os
import pty
import re
import select
import struct
import termios
import unittest

from support import PROGRAM, CommandLineTest, kill_sessions, seconds_left


class TerminalTest(CommandLineTest):
    def train_in_terminal(self, columns, *options, kind="xterm"):
        """What the program writes to a terminal of that width and kind. It stands still for longer than between two bars."""
        words = [PROGRAM, *self.train_words("--steps", 4, "--pause", "0:2:0.2", *options)]
        child, terminal = pty.fork()
        if child == 0:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            os.execve(PROGRAM, [str(word) for word in words], {**os.environ, "TERM": kind})
        self.addCleanup(kill_sessions, child)
        text = b""
        try:
            while select.select([terminal], [], [], seconds_left())[0] and (piece := os.read(terminal, 65536)):
                text += piece
        except OSError:
            pass  # how a terminal says that nobody writes to it any more
        os.close(terminal)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0, text)
        return text.decode()

    def bars(self, text):
        return re.findall(r"\r([^\r\n]*)\033\[K", text)

    def test_the_bar_fits_every_width(self):
        for columns in (30, 80, 120):
            with self.subTest(columns=columns):
                bars = [bar for bar in self.bars(self.train_in_terminal(columns)) if bar]
                self.assertTrue(bars)
                self.assertLess(max(len(bar) for bar in bars), columns)
                self.assertIn("step", bars[0])
                if columns >= 100:
                    self.assertRegex(bars[0], r"^\[#*\.*\] step ")

    def test_a_terminal_of_unknown_width_has_a_bar_too(self):
        self.assertTrue(self.bars(self.train_in_terminal(0)))

    def test_a_terminal_that_cannot_clear_a_line_has_lines(self):
        text = self.train_in_terminal(80, kind="dumb")
        self.assertNotIn("\033", text)
        self.assertIn("test accuracy", text)

    def test_quiet_is_quiet(self):
        self.assertEqual(self.train_in_terminal(80, "--quiet"), "")


if __name__ == "__main__":
    unittest.main()
