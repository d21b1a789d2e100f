"""The zero-sum game behind ``AdversarialLoss``, solved to a proven gap.

Two players label the same n samples. The adversary wants a high score Σ zᵢ y̌ᵢ and a low metric of the predictor's
labels ŷ against its own, the predictor a high metric. The metric is α(k, l) + γ(k, l)·TP with k = Σŷ and l = Σy̌, so
of a mixed strategy only the marginals matter [fathony2020]: the chance c(l) of size l, and x(i, l) of "size l, with
sample i". All x with 0 ≤ x(i, l) ≤ c(l) and Σᵢ x(i, l) = l·c(l) are possible, and the best answer to a strategy is, for
each size, the samples of largest weight: one sort.

Few sizes matter. The game restricted to some sizes of each player is a linear program, solved by a predictor–corrector
interior-point method [mehrotra1992], whose Newton systems fall apart into one small block per sample. Best answers of
every size give a lower and an upper bound of the value of the whole game, and sizes that beat the current ones are
added without restarting. Samples of equal score are one block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

if TYPE_CHECKING:
    from collections.abc import Callable


class Solution(NamedTuple):
    """The adversary's marginals ``(n,)``, the value that they guarantee, and how far the true value may be above."""

    marginals: Tensor
    value: Tensor
    gap: float


class Game:
    """max over y̌ of min over ŷ of E[Σ zᵢ y̌ᵢ − α(k, l) − γ(k, l)·TP]; ``alpha``, ``gamma`` are ``(n + 1, n + 1)``."""

    def __init__(self, z: Tensor, alpha: Tensor, gamma: Tensor) -> None:
        self.n = len(z)
        self.z, self.group, counts = z.unique(return_inverse=True, return_counts=True)
        self.copies = counts.to(z.dtype)
        self.alpha, self.gamma = alpha, gamma

    def answers(self, weights: Tensor, constant: Tensor) -> Tensor:
        """Return the best answer's value for each size, given the samples' weights ``(groups, n + 1)``."""
        top = weights[self.group].sort(0, descending=True).values.cumsum(0)
        return constant + pad(top, (0, 0, 1, 0)).diagonal()


class Player(NamedTuple):
    """A strategy over the sizes 0, n and ``inner``, and its prices; only inner sizes leave a choice of samples.

    ``c`` is per size; ``x``, and the prices ``up`` of x ≤ c and ``low`` of x ≥ 0, are per group of equal samples and
    inner size; ``omega`` prices the inner sizes themselves.
    """

    inner: Tensor
    c: Tensor
    x: Tensor
    up: Tensor
    low: Tensor
    omega: Tensor


class Point:
    """A strictly feasible point of the restricted game, for both players at once.

    Sizes are in the order 0, n (the adversary's), 0, n (the predictor's), the adversary's inner ones, the predictor's.
    """

    def __init__(self, game: Game, adversary: Player, predictor: Player) -> None:
        self.game, like = game, game.z
        ends = torch.tensor([0, game.n], device=like.device)
        self.sizes = torch.cat((ends, adversary.inner)), torch.cat((ends, predictor.inner))
        a, s = len(adversary.inner), len(adversary.inner) + len(predictor.inner)
        self.split, self.columns = a, s
        self.c = torch.cat((adversary.c[:2], predictor.c[:2], adversary.c[2:], predictor.c[2:]))
        self.omega = torch.cat((adversary.omega, predictor.omega))
        both = zip(adversary[2:5], predictor[2:5], strict=True)
        self.x, self.up, self.low = (torch.cat(parts, 1) for parts in both)
        self.room = self.c[4:] - self.x
        # The conditions of both players in skew-symmetric matrices, since the game is zero-sum.
        self.gamma = game.gamma[predictor.inner][:, adversary.inner]
        self.couple = like.new_zeros(s, s)
        self.couple[:a, a:], self.couple[a:, :a] = self.gamma.T, -self.gamma
        self.inner = torch.cat((adversary.inner, predictor.inner))
        size = torch.cat((ends, ends, self.inner))
        mine = torch.tensor([True, True, False, False] + [True] * a + [False] * (s - a), device=like.device)
        self.sides = torch.stack((mine, ~mine)).to(like.dtype)
        alpha = game.alpha[size][:, size] * self.sides[1].unsqueeze(1) * self.sides[0]
        self.base = alpha.T - alpha
        self._price(mine)

    def _price(self, mine: Tensor) -> None:
        """Make the prices feasible for the marginals, with a little slack for the best size."""
        game, a = self.game, self.split
        field = self.x @ self.couple - self.omega
        field[:, :a] += game.z.unsqueeze(1)
        missing = field - (self.up - self.low)
        self.up, self.low = self.up + missing.clamp(min=0), self.low - missing.clamp(max=0)
        worth = self.c @ self.base + pad(self.inner * self.omega + game.copies @ self.up, (4, 0))
        worth[1] += game.copies @ game.z  # the adversary's labelling of everything
        most = torch.where(mine, worth[mine].max(), worth[~mine].max())
        self.slack = most - worth + (0.1 * self._products() if self.columns else 1.0)
        self._measure()

    def _products(self) -> Tensor:
        return self.game.copies @ (self.up * self.room + self.low * self.x).sum(1)  # type: ignore[no-any-return]

    def _measure(self) -> None:
        """Set the distance of the two players' values in the restricted game, and its part per complementary pair."""
        self.gap = float(self._products() + self.slack @ self.c)
        self.product = self.gap / (2 * self.game.n * self.columns + self.columns + 4)

    def player(self, side: int) -> Player:
        """Return one player's part: 0 the adversary's, 1 the predictor's."""
        inner = slice(self.split, None) if side else slice(self.split)
        c = torch.cat((self.c[2:4] if side else self.c[:2], self.c[4:][inner]))
        x, up, low = (part[:, inner] for part in (self.x, self.up, self.low))
        return Player(self.sizes[side][2:], c, x, up, low, self.omega[inner])

    def best_answers(self) -> tuple[float, float, list[Tensor], list[Tensor]]:
        """Return a lower and an upper bound of the game's value, and weights and values of both best answers."""
        game, (q, p) = self.game, (self.player(0), self.player(1))
        weights = [game.z.unsqueeze(1) - p.x @ game.gamma[p.inner], q.x @ game.gamma[:, q.inner].T]
        constants = -p.c @ game.alpha[self.sizes[1]], game.alpha[:, self.sizes[0]] @ q.c
        values = [game.answers(*pair) for pair in zip(weights, constants, strict=True)]
        score = (game.copies * game.z) @ self.marginals()
        return float(score - values[1].max()), float(values[0].max()), weights, values

    def marginals(self) -> Tensor:
        """Return the adversary's chance of each group's label."""
        return self.x[:, : self.split].sum(1) + self.c[1]

    def improve(self) -> float:
        """Take a predictor–corrector step, and return its length."""
        solve = self._newton()
        move = solve(0.0, 0.0, 0.0)
        dx, droom, dup, dlow, dc, dslack, _ = move
        t = self._reach(move)
        rest = self.game.copies @ ((self.up + t * dup) * (self.room + t * droom)).sum(1)
        rest = rest + self.game.copies @ ((self.low + t * dlow) * (self.x + t * dx)).sum(1)
        rest = float(rest + (self.slack + t * dslack) @ (self.c + t * dc))
        target = (rest / self.gap) ** 3 * self.product
        move = solve(target - dup * droom, target - dlow * dx, target - dslack * dc)
        t = self._reach(move)
        for name, part in zip(("x", "room", "up", "low", "c", "slack", "omega"), move, strict=True):
            setattr(self, name, getattr(self, name) + t * part)
        self._measure()
        return t

    def _reach(self, move: tuple[Tensor, ...]) -> float:
        """Return how far along a move everything stays positive, a little short of the boundary."""
        here = self.x, self.room, self.up, self.low, self.c, self.slack
        ratios = [(part / value).flatten() for part, value in zip(move, here, strict=False)]
        worst = float(torch.cat(ratios).min())
        return 1.0 if worst > -0.99 else -0.99 / worst

    def _newton(self) -> Callable[..., tuple[Tensor, ...]]:
        """Factorise Newton's system; the function returned solves it for given products of the pairs."""
        x, room, up, low, c, slack = self.x, self.room, self.up, self.low, self.c, self.slack
        copies, a, s = self.game.copies, self.split, self.columns
        phi, psi = up / room, low / x
        q, p = (phi + psi).split((a, s - a), 1)
        # The blocks of the samples, [[q, −Γᵀ], [Γ, p]], inverted by way of the adversary's corner.
        left = self.gamma.T / p.unsqueeze(1)
        corner = left @ self.gamma
        corner.diagonal(dim1=1, dim2=2).add_(q)
        inverse = x.new_empty(len(x), s, s)
        inverse[:, :a, :a] = torch.linalg.inv_ex(corner).inverse
        side = inverse[:, :a, :a] @ left
        inverse[:, :a, a:], inverse[:, a:, :a] = side, -side.transpose(1, 2)
        inverse[:, a:, a:] = (self.gamma @ side) / -p.unsqueeze(2)
        inverse[:, a:, a:].diagonal(dim1=1, dim2=2).add_(1 / p)
        # The rest couples the sizes only: the prices omega, the chances c, and the two players' values.
        weighed = copies.reshape(-1, 1, 1) * inverse
        rows = phi.unsqueeze(2) * weighed
        sizes = torch.diag(self.inner)
        matrix = x.new_zeros(2 * s + 6, 2 * s + 6)
        matrix[:s, :s] = weighed.sum(0)
        matrix[s + 4 : -2, :s] = sizes - rows.sum(0)
        matrix[:s, s + 4 : -2] = (weighed * phi.unsqueeze(1)).sum(0) - sizes
        matrix[s:-2, s:-2] = torch.diag(slack / c) - self.base
        matrix[s + 4 : -2, s + 4 : -2] += torch.diag(copies @ phi) - (rows * phi.unsqueeze(1)).sum(0)
        matrix[-2:, s:-2], matrix[s:-2, -2:] = self.sides, self.sides.T
        factors = torch.linalg.lu_factor_ex(matrix.T)[:2]

        def solve(for_room: Tensor | float, for_x: Tensor | float, for_c: Tensor | float) -> tuple[Tensor, ...]:
            by_up, by_low, by_slack = for_room / room - up, for_x / x - low, for_c / c - slack
            dx = ((by_low - by_up).unsqueeze(2) * inverse).sum(1)
            right = torch.cat((copies @ dx, by_slack + pad(copies @ (by_up + phi * dx), (4, 0)), c.new_zeros(2)))
            border = torch.linalg.lu_solve(*factors, right.unsqueeze(1)).squeeze(1)
            domega, dc = border[:s], border[s:-2]
            dx = dx + ((phi * dc[4:] - domega).unsqueeze(2) * inverse).sum(1)
            droom = dc[4:] - dx
            return dx, droom, by_up - phi * droom, by_low - psi * dx, dc, by_slack - slack / c * dc, domega

        return solve


def solve(game: Game, tol: float, max_steps: int = 300) -> Solution:
    """Solve the game until the bounds of its value are ``tol`` apart, or rounding or ``max_steps`` ends it."""
    point = _start(game)
    lower, upper, best = -torch.inf, torch.inf, point.marginals()
    # Best answers are computed once the gap is below ``look``, since far from the solution they say little.
    look, length = 0.5, 1.0
    for step in range(max_steps + 1):
        stuck = step == max_steps or not length > 1e-6
        if point.gap < look or stuck:
            low, high, weights, values = point.best_answers()
            if low > lower:
                lower, best = low, point.marginals()
            upper = min(upper, high)
            if upper - lower <= tol or stuck:
                break
            point = _grown(point, weights, values)
            look = 0.5 * point.gap
        length = point.improve()
    return Solution(best[game.group], game.z.new_tensor(lower), max(upper - lower, 0.0))


def _start(game: Game) -> Point:
    """Return the centre of all strategies over a few sizes, some about the number of positive scores."""
    n, z = game.n, game.z
    guess = int(game.copies[z > 0].sum())
    sizes = {1, guess // 2, 3 * guess // 4, guess - 1, guess, guess + 1, 5 * guess // 4, n // 2}
    inner = torch.tensor(sorted(size for size in sizes if 0 < size < n), dtype=torch.long, device=z.device)
    c = z.new_full((len(inner) + 2,), 1 / (len(inner) + 2))
    x = (c[2:] * inner / n).expand(len(z), -1)
    price = 1e-3 / torch.minimum(x, c[2:] - x)
    gamma = game.gamma[inner][:, inner]
    omegas = (game.copies @ z) / n - x[0] @ gamma, gamma @ x[0]
    return Point(game, *(Player(inner, c, x, price, price, omega) for omega in omegas))


def _grown(point: Point, weights: list[Tensor], values: list[Tensor]) -> Point:
    """Add the sizes that answer better than all current ones, by at least a tenth of the gap."""
    players, grew = [], False
    for side in (0, 1):
        player, value, present = point.player(side), values[side], point.sizes[side]
        around = pad(value, (1, 1), value=-torch.inf)
        peak = (value >= around[:-2]) & (value >= around[2:]) & (value > value[present].max() + 0.1 * point.gap)
        peak[present] = False
        new = peak.nonzero().squeeze(1)
        if len(new):
            grew = True
            player = _joined(player, new, weights[side][:, new], point)
        players.append(player)
    return Point(point.game, *players) if grew else point


def _joined(player: Player, new: Tensor, weights: Tensor, point: Point) -> Player:
    """Add new sizes with a small chance, their samples with central values for the current mean product of a pair."""
    # A chance of ε disturbs the others by about ε, and puts the new sizes' own pairs off by gap / (columns·ε).
    chance = min((point.gap / point.columns) ** 0.5, 0.1)
    share, product = chance / len(new), point.product
    x, omega = _central(weights, new, point.game.copies, product / share)
    inside = share * x
    return Player(
        torch.cat((player.inner, new)),
        torch.cat(((1 - chance) * player.c, omega.new_full((len(new),), share))),
        torch.cat(((1 - chance) * player.x, inside), 1),
        torch.cat((player.up, product / (share - inside)), 1),
        torch.cat((player.low, product / inside), 1),
        torch.cat((player.omega, omega)),
    )


def _central(weights: Tensor, sizes: Tensor, copies: Tensor, t: float) -> tuple[Tensor, Tensor]:
    """Return x in (0, 1) with t/(1 − x) − t/x = weights − ω that sums to each size, and ω, by bisection."""
    reach = 2 * t * float(copies.sum())
    low, high = weights.min(0).values - reach, weights.max(0).values + reach
    for _ in range(30):
        omega = (low + high) / 2
        d = (weights - omega) / t
        x = 2 / (2 - d + torch.sqrt(d * d + 4))
        over = copies @ x > sizes
        low, high = torch.where(over, omega, low), torch.where(over, high, omega)
    return x * (sizes / (copies @ x)), omega
