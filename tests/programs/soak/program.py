"""What a description of a program says; the modules beside this one have the descriptions."""


class Program:
    """A program that runs on HAKMEM, and what it does there.

    `packages`   {program: Debian's package that has it}: all that the run needs
    `serving`    whom HAKMEM must have served (served.Serving), by the processes' own counts
    `lasting`    its load lasts run.seconds; otherwise it is repeated until they have passed
    `load(run)`  does the work and returns what must be equal on both allocators
    `limit`      seconds that one load may take beside run.seconds
    `refuses`    why it does not run on HAKMEM here; it is skipped then, unless it shall run anyway
    `prepare(folder)`  makes once what all runs share
    """

    name = ""
    packages = {}
    serving: tuple = ()
    lasting = False
    limit = 300
    refuses = ""

    def prepare(self, folder):
        pass

    def load(self, run):
        raise NotImplementedError
