"""A suite in two parts, each a test of ctest's: NAME leaves out what is marked here, and NAME_extra, which `make test` leaves
out, has nothing else. Which of them to run TEST_PART says; by hand both are."""
import os
import unittest


def extra(case):
    """Marks a test, or a class of them: it shows what others show, at greater length or with more of something."""
    case.is_extra = True
    return case


class Loader(unittest.TestLoader):
    def getTestCaseNames(self, case):
        part = os.environ.get("TEST_PART", "all")
        return [name for name in super().getTestCaseNames(case)
                if part == "all" or is_extra(case, getattr(case, name)) == (part == "extra")]


def is_extra(*marked):
    return any(getattr(one, "is_extra", False) for one in marked)
