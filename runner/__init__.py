"""Workers that execute schedules (imported with the extra ``orsched[runner]``)."""

if __name__ != "orsched.runner":
    raise ImportError("use 'import orsched.runner', not 'import runner'")
