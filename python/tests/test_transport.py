#!/usr/bin/env python3
"""How the ranks of a torch process group get connections of their own: addresses, keys, and who is told what went wrong."""

import concurrent.futures
import json
import re
import threading
import unittest
import unittest.mock

import models
import ranks
import thinwire.torch
import torch
from thinwire import tcp
from thinwire.torch import _transport

KEY = b"0123456789abcdef"


def refused(make):
    try:
        make()
        return ""
    except thinwire.Error as error:
        return f"{type(error).__name__} {error.name}: {error}"


def the_comm(comm):
    return comm


def exchanged(rank, size):
    """The mean of rank + 1 over connections with these options."""
    results = []
    for options in ({}, {"key": KEY}, {"seal": True}, {"seal": True, "key": KEY}, {"streams": 2, "seal": True}):
        ddp, compressor = models.attached(torch.nn.Linear(4, 4, bias=False), "bf16", transport=thinwire.torch.Tcp(**options))
        (ddp(torch.ones(1, 4)).sum() * (rank + 1)).backward()
        results.append((ddp.module.weight.grad.unique().tolist(), compressor.stats()["steps"]))
        compressor.close()
    return results


def not_alike(rank, size):
    """A seal on one rank alone; another key than rank 0 drew; two keys."""
    return [connect(rank, [{}, {"seal": True}], 60.0),
            connect(rank, [{"seal": True}] * 2, 60.0, bytes(32)),
            connect(rank, [{"key": KEY}, {"key": KEY[::-1]}], 3.0)]


def connect(rank, options, seconds, changed=None):
    """options[rank] are this rank's; `changed` replaces the key that rank 1 is told."""
    gathered = _transport.gathered_by_all

    def tampered(group, make):
        offers = gathered(group, make)
        told = changed and rank == 1 and isinstance(offers[0], _transport.Offer)
        return [one._replace(key=changed) for one in offers] if told else offers

    with unittest.mock.patch.object(_transport, "gathered_by_all", tampered):
        return refused(lambda: _transport.with_comm(thinwire.torch.Tcp(**options[rank]), None, _transport.Limits(seconds), the_comm))


def cannot_connect(rank, size):
    """Rank 2 has another key than the others. Who is lost, as each rank is told, by itself and by way of one more gathering."""
    def connected():
        tcp = thinwire.torch.Tcp(key=KEY[::-1] if rank == 2 else KEY)
        return _transport.with_comm(tcp, None, _transport.Limits(3.0), the_comm)

    lost = []
    for make in (connected, lambda: _transport.gathered_by_all(None, connected)):
        try:
            make()
        except thinwire.PeerError as error:
            lost.append((error.rank, str(error)))
    return lost


def cannot_listen(rank, size):
    """Rank 1 has no such interface."""
    tcp = thinwire.torch.Tcp(bind="no-such-interface" if rank else "127.0.0.1")
    return refused(lambda: _transport.with_comm(tcp, None, _transport.Limits(600.0), the_comm))


def numbered_otherwise(rank, size):
    """A comm of this process alone."""
    comm, = thinwire.Comm.threads(1)
    return refused(lambda: _transport.with_comm(comm, None, _transport.Limits(1.0), the_comm))


class TransportTest(unittest.TestCase):
    def test_sealed_connections_carry_the_same(self):
        self.assertEqual(ranks.on_ranks(2, exchanged), [[([1.5], 1)] * 5] * 2)

    def test_who_seals_alone_and_who_has_another_key_is_told(self):
        for alone, other_seal, other_key in ranks.on_ranks(2, not_alike):
            self.assertIn("rank 1 seals its messages, and rank 0 does not", alone)
            self.assertIn("TW_ERROR_PACKET", other_seal)  # the key that was drawn is that of the seals
            self.assertIn("PeerError", other_key)

    def test_a_rank_that_is_not_connected_is_the_one_that_is_lost(self):
        for told in ranks.on_ranks(3, cannot_connect):
            self.assertEqual(len(told), 2, told)
            for rank, text in told:  # on a slow machine rank 1 may be late as well
                missing = re.findall(r"rank (\d) at ", text)
                self.assertIn("2", missing, text)
                self.assertIn(str(rank), missing, text)

    def test_a_rank_that_cannot_listen_tells_the_others(self):
        first, second = ranks.on_ranks(2, cannot_listen)
        self.assertIn("no-such-interface", second)
        self.assertIn("rank 1: ", first)
        self.assertIn("no-such-interface", first)

    def test_who_waits_hears_once_who_was_turned_away(self):
        port = ranks.free_port()
        at = f"127.0.0.1:{port}"

        def joined(workers):
            return thinwire.Tcp().join(at, workers, seconds=ranks.SECONDS)

        with concurrent.futures.ThreadPoolExecutor(3) as pool, self.assertLogs("thinwire") as told:
            waits = pool.submit(joined, 3)
            ranks.wait_for_listener(port)
            for _ in range(2):
                self.assertIn("this group has 3 ranks, not 2", refused(lambda: joined(2)))
            comms = [each.result() for each in (waits, pool.submit(joined, 3), pool.submit(joined, 3))]
        for comm in comms:
            comm.close()
        self.assertEqual(len(told.output), 1, told.output)
        self.assertIn("not 2", told.output[0])

    def test_who_is_turned_away_for_ever_new_reasons_fills_no_disk(self):
        tell = tcp.tells_once()
        with self.assertLogs("thinwire") as told:
            for number in range(100):
                tell(None, b"no: %d" % number)
        self.assertEqual(len(told.records), tcp.MOST_REASONS + 1)
        self.assertEqual([one.getMessage() for one in told.records[-2:]], [f"no: {tcp.MOST_REASONS - 1}", tcp.MORE])

    def test_who_comes_with_many_others_is_told_of_once(self):
        tell = tcp.tells_once()
        with self.assertLogs("thinwire") as told:
            for reason in (b"a", b"refused besides: 7; the last: a", b"refused besides: 8; the last: b", b"b"):
                tell(None, reason)
        self.assertEqual([one.getMessage() for one in told.records], ["a", "b"])

    def test_a_comm_with_other_numbers_is_refused(self):
        for rank, text in enumerate(ranks.on_ranks(2, numbered_otherwise)):
            self.assertIn(f"rank {rank} of 2 in torch's process group is rank 0 of 1 of the transport", text)

    def test_why_is_told_before_who_is_gone_and_what_is_no_json_is_refused(self):
        told = [None] * 3

        def act(rank, comm):
            failures = {0: thinwire.PeerError("somebody is gone", 7, "TW_ERROR_PEER"), 1: thinwire.SpecError("no such spec", 2, "TW_ERROR_SPEC")}

            def make():
                if rank in failures:
                    raise failures[rank]
                return ["value", rank]
            told[rank] = [refused(lambda: _transport.gathered_by_all(comm, make)), _transport.gathered_by_all(comm, lambda: rank)]
            if rank == 2:  # as a peer that means no good
                comm.allgather(b"\x80pickle")
            else:
                told[rank].append(refused(lambda: _transport.gathered(comm, "good")))

        ranks.on_threads(3, act)
        self.assertEqual([one[0] for one in told], ["SpecError TW_ERROR_SPEC: rank 1: no such spec",
                                                    "SpecError TW_ERROR_SPEC: no such spec",
                                                    "SpecError TW_ERROR_SPEC: rank 1: no such spec"])
        self.assertEqual([one[1] for one in told], [[0, 1, 2]] * 3)
        for one in told[:2]:
            self.assertIn("rank 2 sends what this version of thinwire does not", one[2])

    def between_two(self, good, bad):
        """What rank 0 does, and rank 1, which means no good, of a group."""
        comms = thinwire.Comm.threads(2)
        comms[0].set_timeout(20), comms[0].set_patience(20)
        thread = threading.Thread(target=bad, args=comms[1:])
        thread.start()
        try:
            return good(comms[0])
        finally:
            comms[0].leave()
            thread.join(ranks.SECONDS)

    def test_words_of_another_form_are_refused(self):
        for word in (b"5", b"null", b"[]", b"[[1,2]]", b"\xff\xfe", b'[null,["Error","x",1]]', b'[null,[1,2,3,4]]',
                     b'[null,["Error","x",1,"x",0]]', b'[null,["PeerError","x",7,"x"]]', b'[null,["PeerError","x",7,"x","2"]]',
                     b'["a",1,2]', b'[1,{"0":1}]', b"[" * 100_000, b'{"0":1}'):
            text = self.between_two(lambda comm: refused(lambda: _transport.gathered_by_all(comm, lambda: 1)),
                                    lambda comm: comm.allgather(word))
            self.assertIn("rank 1 sends what this version of thinwire does not", text, word[:40])
        for mine, word in (("a", b"1"), (["a"], b"[]"), (["a"], b'["a",2]'), (["a"], b'"a"'), ([1, 2], b'[1,"b"]'), (True, b"1")):
            text = self.between_two(lambda comm: refused(lambda: _transport.gathered(comm, mine)), lambda comm: comm.allgather(word))
            self.assertIn("rank 1 sends what this version of thinwire does not", text, word)

    def test_no_word_of_a_peer_rules_a_terminal_or_fills_memory(self):
        word = json.dumps([None, ["SpecError", "hi\x1b[31m\nred" + "e" * 9999, 2, "x"]]).encode()
        text = self.between_two(lambda comm: refused(lambda: _transport.gathered_by_all(comm, lambda: 1)),
                                lambda comm: comm.allgather(word))
        self.assertIn("rank 1: hi\\x1b[31m\\nrede", text)
        self.assertLess(len(text), 5000)
        text = self.between_two(lambda comm: refused(lambda: _transport.gathered(comm, "a")),
                                lambda comm: comm.allgather_alike((1 << 24 | 1).to_bytes(8, "little")))
        self.assertIn("rank 1 has 16777217 bytes for the others; want at most 16777216", text)


if __name__ == "__main__":
    unittest.main()
