"""On which hosts a job starts: those that are there, answer and have the same mpies; never more ranks than wanted."""

import time
from collections.abc import Callable, Sequence

from mpies.core.errors import ConfigError
from mpies.launch.answers import ask_hosts, end_leftovers
from mpies.launch.hosts import Host, HostSource, check_slots, count_ranks

AGAIN = 2.0  # seconds between two questions to hosts that are waited for

Report = Callable[[str, str], object]  # called with a severity and a line


class TooFewHosts(ConfigError):
    """Fewer hosts answer than the job needs.  answering: how many do."""

    def __init__(self, message: str, answering: int) -> None:
        super().__init__(message)
        self.answering = answering


class Placement:
    """Chooses the hosts of each start of a job.

    source: which hosts there are.  ranks: at most, None for all slots.  min_ranks: with fewer the job does not go on.
    wait: seconds that hosts have to answer: all of them before the first start, then enough for min_ranks.
    way: how they are asked, ssh or srun.

    is_stopped: tells whether nobody waits any more.  job: the name that all ranks of the job share.
    Raises ConfigError where the hosts have too few slots.
    """

    def __init__(
        self,
        source: HostSource,
        ranks: int | None = None,
        min_ranks: int = 1,
        wait: float = 0.0,
        way: str = "ssh",
    ) -> None:
        self.source, self.ranks, self.min_ranks, self.wait, self.way = source, ranks, min_ranks, wait, way
        self.is_stopped: Callable[[], bool] = lambda: False
        self.job = ""
        self.count_listed = 0  # how many hosts there were when they were last looked for
        self._silent: set[str] = set()  # hosts whose silence has been reported
        check_slots(source.given(), ranks, min_ranks)

    def choose(self, report: Report, is_first: bool) -> list[Host]:
        """The hosts to start on, each with as many slots as are to be used.  Ends what is left of an earlier start.

        Raises TooFewHosts after `wait` seconds, and ConfigError where a host has another mpies at the first start.
        """
        deadline = time.monotonic() + self.wait
        end_leftovers(self.job)
        while True:
            listed, unlisted = self._list(is_first)
            self.count_listed = len(listed)
            answers = ask_hosts(listed, self.way, self.job)
            fit = [answer.host for answer in answers if not answer.problem]
            for answer in answers:
                if answer.is_mismatch and is_first:
                    raise ConfigError(answer.problem)
            slots = sum(host.slots for host in fit)
            is_over = self.is_stopped() or time.monotonic() >= deadline
            problems = [answer for answer in answers if answer.problem]
            news = [answer.problem for answer in problems if answer.host.name not in self._silent]
            self._silent = {answer.host.name for answer in problems}
            if is_over and slots < self.min_ranks:
                few = f"{len(fit)} of {len(listed)} hosts answer, with {slots} slots" if fit else "no host answers"
                why = "; ".join(news[:3] or [answer.problem for answer in problems[:1]] or [unlisted])
                raise TooFewHosts(f"{few}, but --min-ranks is {self.min_ranks}; {why}", len(fit))
            for problem in news:
                report("WARNING", f"no ranks on {problem}")
            if fit and slots >= self.min_ranks and (not is_first or len(fit) == len(listed) or is_over):
                return self.limit(fit)
            time.sleep(AGAIN)

    def _list(self, is_first: bool) -> tuple[list[Host], str]:
        """The hosts that there are now, and what to say where there are none.

        Later than at the first start, a hostfile that cannot be read may be one that is being replaced.
        """
        try:
            return self.source.hosts(), "no hosts are named"
        except ConfigError as error:
            if is_first:
                raise
            return [], str(error)

    def all_answer(self, hosts: Sequence[Host]) -> bool:
        """Whether ranks can run on all of these hosts now."""
        return not any(answer.problem for answer in ask_hosts(hosts, self.way, self.job))

    def limit(self, hosts: Sequence[Host]) -> list[Host]:
        """The first of the hosts, as many as `ranks` needs."""
        left = self.ranks or sum(host.slots for host in hosts)
        chosen = []
        for host in hosts:
            if left > 0:
                chosen.append(Host(host.name, min(host.slots, left)))
                left -= chosen[-1].slots
        return chosen

    def find_larger(self, used: Sequence[Host]) -> list[Host]:
        """The hosts of a start on more ranks than on the hosts in use; [] where there are none."""
        listed = self.source.hosts()
        names = {host.name for host in used}
        others = [host for host in listed if host.name not in names]
        if not others or (self.ranks and count_ranks(used) >= self.ranks):
            return []
        came = {answer.host.name for answer in ask_hosts(others, self.way, self.job) if not answer.problem}
        self._silent -= came
        larger = self.limit([host for host in listed if host.name in names | came])
        return larger if count_ranks(larger) > count_ranks(used) else []


def missing_in(hosts: Sequence[Host] | None, others: Sequence[Host] | None) -> list[Host]:
    """Those of `others` that are not among `hosts`."""
    names = {host.name for host in hosts or ()}
    return [host for host in others or () if host.name not in names]
