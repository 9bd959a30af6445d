"""Three generations of each solver on fixed noise and returns, against its equations written down in float64.

One generation shows no decay, no momentum, no evolution path and no bias correction.
"""

import cma
import numpy as np
import pytest

from mpies.core.streams import SOLVER, stream
from mpies.solvers.adapters.from_pycma import CMAES
from mpies.solvers.ars import ARS
from mpies.solvers.base import Results
from mpies.solvers.deep_ga import DeepGA
from mpies.solvers.novelty_es import NoveltyES
from mpies.solvers.openai_es import OpenAIES
from mpies.solvers.pepg import PEPG
from mpies.solvers.pgpe import PGPE
from mpies.solvers.sampling.noise import build_table, sample_indices
from mpies.solvers.sep_cma import SepCMA
from mpies.solvers.snes import SNES, utilities
from tests.solvers.single_generation import FunctionLoop, begin, sphere, tell, tell_once

D, N = 5, 8
NOISE = np.random.default_rng(7).standard_normal((3, N, D))
STEPS = [2, 2, 2, 2, 10, 2, 2, 2]
RETURNS = np.random.default_rng(8).permuted(np.tile([3.0, 1.0, 4.0, 1.5, 9.0, 2.0, 6.0, 5.0], (3, 1)), axis=1)


def ranks(f):
    """Centred ranks (Salimans et al. 2017, section 2.1)."""
    return np.argsort(np.argsort(f)) / (len(f) - 1) - 0.5


class Adam:
    """Kingma & Ba 2015, algorithm 1, ascending."""

    def __init__(self, beta1=0.9, beta2=0.999, epsilon=1e-8):
        self.m, self.v, self.t, self.options = np.zeros(D), np.zeros(D), 0, (beta1, beta2, epsilon)

    def step(self, g, rate):
        beta1, beta2, _ = self.options
        self.m, self.v, self.t = beta1 * self.m + (1 - beta1) * g, beta2 * self.v + (1 - beta2) * g**2, self.t + 1
        return self.next(rate)

    def next(self, rate):
        beta1, beta2, epsilon = self.options
        return rate * self.m / (1 - beta1**self.t) / (np.sqrt(self.v / (1 - beta2**self.t)) + epsilon)


class SGD:
    def __init__(self):
        self.v = np.zeros(D)

    def step(self, g, rate):
        self.v = 0.6 * self.v + 0.4 * g
        return self.next(rate)

    def next(self, rate):
        return rate * self.v


def openai_es(generations, rule):
    """Salimans et al. 2017, algorithm 2, with sigma and learning rate that decay to a limit."""
    mean, sigma, rate = np.ones(D), 0.3, 0.05
    for z, f in generations:
        r = ranks(f)
        g = (r[0::2] - r[1::2]) @ z / N
        step = rule.step(g - 0.01 * mean, rate)
        mean = mean + step
        ratio = np.linalg.norm(step) / np.linalg.norm(mean)
        sigma, rate = max(0.5 * sigma, 0.1), max(0.8 * rate, 0.03)
    values = {"mean": mean, "sigma": sigma, "learning_rate": rate, "predicted": mean + rule.next(rate)}
    return values | {"update_ratio": ratio, "gradient_norm": np.linalg.norm(g)}


def openai_es_with(rule, **optimizer):
    """A case: the class, its options with this optimizer, and the equations with the rule that rule() makes."""
    options = {"sigma": 0.3, "sigma_decay": 0.5, "sigma_limit": 0.1, "learning_rate_decay": 0.8}
    options |= {"learning_rate_limit": 0.03, "weight_decay": 0.01, "optimizer": {"learning_rate": 0.05, **optimizer}}
    return OpenAIES, options, lambda generations: openai_es(generations, rule())


OTHER_ADAM = {"beta1": 0.5, "beta2": 0.9, "epsilon": 0.01}


def pepg(generations):
    """Ha 2017 (estool, es.py, class PEPG): Adam with beta1 = 0.99 on a sum, weight decay in the fitness."""
    mean, sigma, rate, rule = np.ones(D), np.full(D, 0.2), 0.05, Adam(beta1=0.99)
    for z, f in generations:
        eps = sigma * z
        members = np.stack([mean + eps, mean - eps], axis=1).reshape(N, D)
        r = ranks(f) - 0.01 * np.mean(members**2, axis=1)
        mean = mean + rule.step((r[0::2] - r[1::2]) @ eps, rate)
        change = 0.2 * ((r[0::2] + r[1::2]) / 2 - r.mean()) @ ((eps**2 - sigma**2) / sigma) / N
        sigma = sigma + np.clip(change, -0.2 * sigma, 0.2 * sigma)
        sigma = np.where(sigma > 0.1, 0.9 * sigma, sigma)
        rate = 0.8 * rate if rate > 0.035 else rate
    return {"mean": mean, "sigma": sigma, "learning_rate": rate, "predicted": mean + rule.next(rate)}


PEPG_OPTIONS = {"sigma_init": 0.2, "sigma_decay": 0.9, "sigma_limit": 0.1, "learning_rate": 0.05}
PEPG_OPTIONS |= {"learning_rate_decay": 0.8, "learning_rate_limit": 0.035}


def pgpe(generations):
    """Toklu et al. 2020 (arXiv 2008.02387), algorithm 1 (ClipUp) and section 2 (PGPE)."""
    mean, sigma, velocity = np.ones(D), np.full(D, 0.3), np.zeros(D)
    for z, f in generations:
        eps, r = sigma * z, ranks(f)
        g = (r[0::2] - r[1::2]) @ eps / N
        velocity = 0.9 * velocity + 0.1125 * g / np.linalg.norm(g)
        velocity *= min(1, 0.15 / np.linalg.norm(velocity))
        mean = mean + velocity
        change = 0.1 * (r[0::2] + r[1::2] - 2 * r.mean()) @ ((eps**2 - sigma**2) / sigma) / N
        sigma = sigma + np.clip(change, -0.2 * sigma, 0.2 * sigma)
    return {"mean": mean, "sigma": sigma, "predicted": mean + velocity, "gradient_norm": np.linalg.norm(g)}


def ars(generations):
    """Mania et al. 2018 (arXiv 1803.07055), algorithm 2: the best two of four directions; 0.5 a step is subtracted."""
    mean = np.ones(D)
    for z, f in generations:
        plus, minus = (f - 0.5 * np.array(STEPS)).reshape(-1, 2).T
        best = np.argsort(-np.maximum(plus, minus))[:2]
        mean = mean + 0.5 / (2 * np.std([plus[best], minus[best]])) * (plus - minus)[best] @ z[best]
    return {"mean": mean}


def snes(generations):
    """Wierstra et al. 2014 (JMLR 15), algorithm 6, eta of table 1."""
    mean, sigma, eta = np.ones(D), np.full(D, 0.5), (3 + np.log(D)) / (5 * np.sqrt(D))
    for z, f in generations:
        z = z[np.argsort(-f)]
        mean, sigma = mean + sigma * (utilities(N) @ z), sigma * np.exp(eta / 2 * utilities(N) @ (z**2 - 1))
    return {"mean": mean, "sigma": sigma}


def sep_cma(generations):
    """Hansen 2016 (arXiv 1604.00772), equations 41 to 58, of which only the diagonal is kept (Ros & Hansen 2008)."""
    mean, sigma, c, path, path_c = np.ones(D), 0.5, np.ones(D), np.zeros(D), np.zeros(D)
    w = np.maximum(0, np.log((N + 1) / 2) - np.log(np.arange(1, N + 1)))
    w /= w.sum()
    mu = 1 / np.sum(w**2)
    c_s, c_c = (mu + 2) / (D + mu + 5), (4 + mu / D) / (D + 4 + 2 * mu / D)
    c_1 = (D + 2) / 3 * 2 / ((D + 1.3) ** 2 + mu)
    c_mu = (D + 2) / 3 * 2 * (mu - 2 + 1 / mu) / ((D + 2) ** 2 + mu)
    chi, steady = np.sqrt(D) * (1 - 1 / (4 * D) + 1 / (21 * D**2)), []
    for g, (z, f) in enumerate(generations):
        z = z[np.argsort(-f)]
        y = np.sqrt(c) * z
        path = (1 - c_s) * path + np.sqrt(c_s * (2 - c_s) * mu) * (w @ z)
        length = np.linalg.norm(path)
        h = float(length / np.sqrt(1 - (1 - c_s) ** (2 * (g + 1))) < (1.4 + 2 / (D + 1)) * chi)
        mean = mean + sigma * (w @ y)
        path_c = (1 - c_c) * path_c + h * np.sqrt(c_c * (2 - c_c) * mu) * (w @ y)
        c = (1 - c_1 - c_mu + (1 - h) * c_1 * c_c * (2 - c_c)) * c + c_1 * path_c**2 + c_mu * (w @ y**2)
        sigma *= np.exp(min(1, c_s / (1 + c_s) * (length / chi - 1)))
        steady.append(h)
    return {"mean": mean, "sigma": sigma, "variance": c, "path_sigma": path, "path_c": path_c, "steady": steady}


CASES = {
    "openai_es": openai_es_with(Adam, kind="adam"),
    "openai_es other adam": openai_es_with(lambda: Adam(**OTHER_ADAM), kind="adam", **OTHER_ADAM),
    "openai_es sgd": openai_es_with(SGD, kind="sgd", momentum=0.6),
    "pepg": (PEPG, PEPG_OPTIONS, pepg),
    "pgpe": (PGPE, {"sigma": 0.3}, pgpe),
    "ars": (ARS, {"top": 2, "learning_rate": 0.5, "sigma": 0.1, "alive_bonus": 0.5}, ars),
    "snes": (SNES, {"sigma": 0.5}, snes),
}


def assert_follows(solver, expected):
    has = vars(solver) | solver.report() | {"sigma": solver.sigma if hasattr(solver, "sigma") else None}
    has |= {"predicted": solver.predict_mean()}
    for name, value in expected.items():
        np.testing.assert_allclose(has[name], value, rtol=2e-6, atol=1e-9, err_msg=name)


@pytest.mark.parametrize(("kind", "options", "reference"), CASES.values(), ids=CASES)
def test_a_solver_follows_its_equations(kind, options, reference):
    solver = begin(kind, D, dtype=np.float64, population=N, **options)
    rows = N // 2 if solver.options.antithetic else N
    generations = [(z[:rows], f) for z, f in zip(NOISE, RETURNS, strict=True)]
    for z, f in generations:
        tell(solver, z, f, STEPS)
    assert_follows(solver, reference(generations))


def test_equal_returns_move_nothing_in_ars():
    solver = ARS(ARS.Options(population=4), 1)
    tell_once(solver, [[2.0], [1.0]], [3, 3, 3, 3])
    assert solver.mean[0] == 1


# Factors on the noise of each generation, and whether each path is short (h_sigma = 1).
PATHS = [((1, 1, 1), (1, 1, 1)), ((2, 1, 1), (0, 1, 1)), ((1, 2, 9), (1, 1, 0)), ((1, 3, 9), (1, 0, 0))]


@pytest.mark.parametrize(("factors", "steady"), PATHS)
def test_sep_cma_follows_its_equations_with_short_and_long_paths(factors, steady):
    solver = begin(SepCMA, D, dtype=np.float64, population=N, sigma=0.5)
    generations = [(k * z, f) for k, z, f in zip(factors, NOISE, RETURNS, strict=True)]
    for z, f in generations:
        tell(solver, z, f)
    expected = sep_cma(generations)
    assert tuple(expected.pop("steady")) == steady
    assert_follows(solver, expected)


@pytest.mark.parametrize("variant", ["ns", "nsr", "nsra"])
def test_novelty_es_follows_its_equations(variant):
    """Conti et al. 2018 (arXiv 1712.06560), algorithms 1 to 3, with an archive of two: the first mean is novel."""
    options = {"means": 2, "archive": 2, "sigma": 0.2, "weight_decay": 0.01, "change": 0.1, "patience": 2}
    solver = begin(NoveltyES, D, dtype=np.float64, variant=variant, population=N, **options)
    means, rules, archive = solver.means.copy(), [Adam(), Adam()], []
    share, best, stalled, last = {"ns": 0.0, "nsr": 0.5, "nsra": 1.0}[variant], -np.inf, 0, [-np.inf, -np.inf]
    behaviours = np.random.default_rng(9).standard_normal((3, N + 1, 2)).astype(np.float32)
    for turn, z, f, b, played in zip([0, 1, 0], NOISE, RETURNS, behaviours, [7.0, 3.0, 2.0], strict=True):
        members = tell(solver, z[: N // 2], np.r_[played, f], behaviours=b)
        np.testing.assert_allclose(members[1], means[turn] + 0.2 * z[0], rtol=1e-6)
        distances = [np.linalg.norm(b[1:] - past, axis=1) for past in archive]
        novel = ranks(np.mean(distances, axis=0)) if archive else np.zeros(N)
        r = share * ranks(f) + (1 - share) * novel
        gradient = (r[0::2] - r[1::2]) @ z[: N // 2] / N
        means[turn] += rules[turn].step(gradient - 0.01 * means[turn], 0.03)
        assert solver.report()["gradient_norm"] == pytest.approx(np.linalg.norm(gradient), abs=1e-7)
        archive, last[turn] = [*archive, b[0]][-2:], played
        if played > best:
            best, stalled, change = played, 0, 0.1
        else:
            stalled, change = (stalled + 1) % 2, -0.1 if stalled else 0.0
        share = min(1.0, max(0.0, share + change)) if variant == "nsra" else share
        np.testing.assert_allclose(solver.mean, means[np.argmax(last)], rtol=2e-6)
    np.testing.assert_allclose(solver.means, means, rtol=2e-6)
    np.testing.assert_array_equal(solver.past, archive)
    assert solver.share == pytest.approx({"ns": 0.0, "nsr": 0.5, "nsra": 0.9}[variant])
    assert not np.shares_memory(solver.mean, solver.means)


@pytest.mark.parametrize(("snapshot", "times_sent"), [(2, 6), (3, 4)])
def test_deep_ga_breeds_as_with_whole_parameters_and_keeps_the_elite_to_the_bit(snapshot, times_sent):
    """Petroski Such et al. 2017 (arXiv 1712.06567), algorithm 1, with parents as vectors in place of chains."""
    table, parents, played, sent = build_table(4096), np.ones((3, D)), [], 0
    solver = begin(DeepGA, D, seed=2, population=12, parents=3, sigma=0.1, initial_sigma=0.5, snapshot=snapshot)
    loop = FunctionLoop(solver, lambda x: played.append(x.copy()) or sphere(x), table)
    for generation in range(12):
        sent += solver.ask().rows is not None
        elite, picks = solver.mean.copy(), solver.picks
        indices = sample_indices(2, generation, 0, 12, len(table), D)
        rows = np.array([table[index : index + D] for index in indices])
        expected = parents[picks] + (0.1 if generation else 0.5) * rows
        expected[0] = parents[0]
        returns, members = loop.run_generation().returns, played[-12:]
        assert np.array_equal(members[0], elite)
        assert np.array_equal(solver.mean, members[int(np.argmax(returns))]) and returns.max() >= sphere(elite)
        np.testing.assert_allclose(members, expected, rtol=1e-6, atol=2e-7 if generation else 0)
        parents = expected[np.argsort(np.sum(expected**2, axis=1))[:3]]
        np.testing.assert_allclose(solver.mean, parents[0], rtol=1e-6, atol=2e-7)
    assert sent == times_sent  # chains are sent in most generations, parameters in few


@pytest.mark.parametrize(("covariance", "options"), [("full", {}), ("auto", {}), ("diagonal", {"CMA_diagonal": True})])
def test_cma_es_draws_and_learns_as_pycma(covariance, options):
    solver = begin(CMAES, D, seed=3, population=N, sigma=0.5, covariance=covariance)
    source = stream(3, SOLVER)
    options |= {"popsize": N, "randn": lambda *shape: source.standard_normal(shape), "seed": np.nan, "verbose": -9}
    package = cma.CMAEvolutionStrategy(np.ones(D), 0.5, options)
    for f in RETURNS:
        candidates, proposal = package.ask(), solver.ask()
        np.testing.assert_allclose(proposal.rows, candidates, rtol=1e-6)
        package.tell(candidates, -f)
        solver.tell(proposal, Results.of(f), np.zeros((0, D), np.float32))
        np.testing.assert_allclose(solver.mean, package.mean, rtol=1e-6)
        assert solver.report()["sigma"] == pytest.approx(package.sigma)
    assert [CMAES.Options(covariance="auto").chosen(d) for d in (2000, 2001)] == ["full", "diagonal"]


def test_utilities_by_hand():
    """As the reference of SNES takes them."""
    np.testing.assert_allclose(utilities(2), [0.5, -0.5])  # ln 2 and 0, scaled to a sum of 1, less 1/2
    expected = np.array([np.log(3), np.log(1.5), 0, 0]) / np.log(4.5) - 0.25
    np.testing.assert_allclose(utilities(4), expected, atol=1e-15)
