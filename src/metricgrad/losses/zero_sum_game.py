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


class GameSolution(NamedTuple):
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
        self.alpha = alpha
        self.gamma = gamma

    def best_values(self, weights: Tensor, constant: Tensor) -> Tensor:
        """Return the best answer's value for each size, given the samples' weights ``(groups, n + 1)``."""
        # Of size k, the k largest of the weights for that size.
        largest_sums = weights[self.group].sort(0, descending=True).values.cumsum(0)
        return constant + pad(largest_sums, (0, 0, 1, 0)).diagonal()


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
        self.game = game
        like = game.z
        ends = torch.tensor([0, game.n], device=like.device)
        self.sizes = torch.cat((ends, adversary.inner)), torch.cat((ends, predictor.inner))
        a = len(adversary.inner)
        s = a + len(predictor.inner)
        self.split = a
        self.columns = s
        self.c = torch.cat((adversary.c[:2], predictor.c[:2], adversary.c[2:], predictor.c[2:]))
        self.omega = torch.cat((adversary.omega, predictor.omega))
        self.x = torch.cat((adversary.x, predictor.x), 1)
        self.up = torch.cat((adversary.up, predictor.up), 1)
        self.low = torch.cat((adversary.low, predictor.low), 1)
        self.room = self.c[4:] - self.x
        # The conditions of both players in skew-symmetric matrices, since the game is zero-sum.
        self.gamma = game.gamma[predictor.inner][:, adversary.inner]
        self.couple = like.new_zeros(s, s)
        self.couple[:a, a:] = self.gamma.T
        self.couple[a:, :a] = -self.gamma
        self.inner = torch.cat((adversary.inner, predictor.inner))
        size = torch.cat((ends, ends, self.inner))
        is_adversary = torch.tensor([True, True, False, False] + [True] * a + [False] * (s - a), device=like.device)
        self.sides = torch.stack((is_adversary, ~is_adversary)).to(like.dtype)
        alpha = game.alpha[size][:, size] * self.sides[1].unsqueeze(1) * self.sides[0]
        self.base = alpha.T - alpha
        self._set_prices(is_adversary)

    def _set_prices(self, is_adversary: Tensor) -> None:
        """Make the prices feasible for the marginals, with a little slack for the best size."""
        game = self.game
        a = self.split
        field = self.x @ self.couple - self.omega
        field[:, :a] += game.z.unsqueeze(1)
        missing = field - (self.up - self.low)
        self.up = self.up + missing.clamp(min=0)
        self.low = self.low - missing.clamp(max=0)
        worth = self.c @ self.base + pad(self.inner * self.omega + game.copies @ self.up, (4, 0))
        worth[1] += game.copies @ game.z  # the adversary's labelling of everything
        most_worth = torch.where(is_adversary, worth[is_adversary].max(), worth[~is_adversary].max())
        extra_slack = 0.1 * self._sum_products() if self.columns else 1.0
        self.slack = most_worth - worth + extra_slack
        self._update_gap()

    def _sum_products(self) -> Tensor:
        return self.game.copies @ (self.up * self.room + self.low * self.x).sum(1)  # type: ignore[no-any-return]

    def _update_gap(self) -> None:
        """Set the distance of the two players' values in the restricted game, and its part per complementary pair."""
        self.gap = float(self._sum_products() + self.slack @ self.c)
        self.product = self.gap / (2 * self.game.n * self.columns + self.columns + 4)

    def player(self, side: int) -> Player:
        """Return one player's part: 0 the adversary's, 1 the predictor's."""
        inner = slice(self.split, None) if side else slice(self.split)
        ends = self.c[2:4] if side else self.c[:2]
        return Player(
            inner=self.sizes[side][2:],
            c=torch.cat((ends, self.c[4:][inner])),
            x=self.x[:, inner],
            up=self.up[:, inner],
            low=self.low[:, inner],
            omega=self.omega[inner],
        )

    def best_answers(self) -> tuple[float, float, list[Tensor], list[Tensor]]:
        """Return a lower and an upper bound of the game's value, and weights and values of both best answers."""
        game = self.game
        adversary = self.player(0)
        predictor = self.player(1)
        adversary_weights = game.z.unsqueeze(1) - predictor.x @ game.gamma[predictor.inner]
        predictor_weights = adversary.x @ game.gamma[:, adversary.inner].T
        adversary_values = game.best_values(adversary_weights, -predictor.c @ game.alpha[self.sizes[1]])
        predictor_values = game.best_values(predictor_weights, game.alpha[:, self.sizes[0]] @ adversary.c)
        score = (game.copies * game.z) @ self.marginals()
        lower = float(score - predictor_values.max())
        upper = float(adversary_values.max())
        return lower, upper, [adversary_weights, predictor_weights], [adversary_values, predictor_values]

    def marginals(self) -> Tensor:
        """Return the adversary's chance of each group's label."""
        return self.x[:, : self.split].sum(1) + self.c[1]

    def improve(self) -> float:
        """Take a predictor–corrector step, and return its length."""
        solve_newton = self._factorise_newton()
        copies = self.game.copies
        # The predictor: a step towards products of zero, and what would be left of the gap after it.
        move = solve_newton(0.0, 0.0, 0.0)
        dx, droom, dup, dlow, dc, dslack, _ = move
        t = self._find_step_length(move)
        gap_left = copies @ ((self.up + t * dup) * (self.room + t * droom)).sum(1)
        gap_left = gap_left + copies @ ((self.low + t * dlow) * (self.x + t * dx)).sum(1)
        gap_left = float(gap_left + (self.slack + t * dslack) @ (self.c + t * dc))
        # The corrector: products as small as that allows, less those of the moves themselves.
        target = (gap_left / self.gap) ** 3 * self.product
        move = solve_newton(target - dup * droom, target - dlow * dx, target - dslack * dc)
        t = self._find_step_length(move)
        for name, part in zip(("x", "room", "up", "low", "c", "slack", "omega"), move, strict=True):
            setattr(self, name, getattr(self, name) + t * part)
        self._update_gap()
        return t

    def _find_step_length(self, move: tuple[Tensor, ...]) -> float:
        """Return how much of a move can be made until something is no longer positive, a little less than that."""
        here = self.x, self.room, self.up, self.low, self.c, self.slack
        ratios = [(part / value).flatten() for part, value in zip(move, here, strict=False)]
        worst = float(torch.cat(ratios).min())
        return 1.0 if worst > -0.99 else -0.99 / worst

    def _factorise_newton(self) -> Callable[..., tuple[Tensor, ...]]:
        """Factorise Newton's system; the function returned solves it for given products of the pairs."""
        x = self.x
        room = self.room
        up = self.up
        low = self.low
        c = self.c
        slack = self.slack
        copies = self.game.copies
        a = self.split
        s = self.columns
        phi = up / room
        psi = low / x
        q, p = (phi + psi).split((a, s - a), 1)
        # The blocks of the samples, [[q, −Γᵀ], [Γ, p]], inverted by way of the adversary's corner.
        left = self.gamma.T / p.unsqueeze(1)
        corner = left @ self.gamma
        corner.diagonal(dim1=1, dim2=2).add_(q)
        inverse = x.new_empty(len(x), s, s)
        inverse[:, :a, :a] = torch.linalg.inv_ex(corner).inverse
        side = inverse[:, :a, :a] @ left
        inverse[:, :a, a:] = side
        inverse[:, a:, :a] = -side.transpose(1, 2)
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
        matrix[-2:, s:-2] = self.sides
        matrix[s:-2, -2:] = self.sides.T
        factors = torch.linalg.lu_factor_ex(matrix.T)[:2]

        def solve_newton(for_room: Tensor | float, for_x: Tensor | float, for_c: Tensor | float) -> tuple[Tensor, ...]:
            by_up = for_room / room - up
            by_low = for_x / x - low
            by_slack = for_c / c - slack
            dx = ((by_low - by_up).unsqueeze(2) * inverse).sum(1)
            right_of_c = by_slack + pad(copies @ (by_up + phi * dx), (4, 0))
            right_side = torch.cat((copies @ dx, right_of_c, c.new_zeros(2)))
            solution = torch.linalg.lu_solve(*factors, right_side.unsqueeze(1)).squeeze(1)
            domega = solution[:s]
            dc = solution[s:-2]
            dx = dx + ((phi * dc[4:] - domega).unsqueeze(2) * inverse).sum(1)
            droom = dc[4:] - dx
            dup = by_up - phi * droom
            dlow = by_low - psi * dx
            dslack = by_slack - slack / c * dc
            return dx, droom, dup, dlow, dc, dslack, domega

        return solve_newton


def solve_game(game: Game, tol: float, max_steps: int = 300) -> GameSolution:
    """Solve the game until the bounds of its value are ``tol`` apart, or rounding or ``max_steps`` ends it."""
    point = _start_point(game)
    lower = -torch.inf
    upper = torch.inf
    best_marginals = point.marginals()
    # Best answers are computed once the gap is below this: far from the solution their bounds are loose.
    gap_to_answer = 0.5
    step_length = 1.0
    for step in range(max_steps + 1):
        must_end = step == max_steps or not step_length > 1e-6
        if point.gap < gap_to_answer or must_end:
            low, high, weights, values = point.best_answers()
            if low > lower:
                lower = low
                best_marginals = point.marginals()
            upper = min(upper, high)
            if upper - lower <= tol or must_end:
                break
            point = _add_better_sizes(point, weights, values)
            gap_to_answer = 0.5 * point.gap
        step_length = point.improve()
    return GameSolution(best_marginals[game.group], game.z.new_tensor(lower), max(upper - lower, 0.0))


def _start_point(game: Game) -> Point:
    """Return the centre of all strategies over a few sizes, some about the number of positive scores."""
    n = game.n
    z = game.z
    guess = int(game.copies[z > 0].sum())
    sizes = {1, guess // 2, 3 * guess // 4, guess - 1, guess, guess + 1, 5 * guess // 4, n // 2}
    inner_sizes = sorted(size for size in sizes if 0 < size < n)
    inner = torch.tensor(inner_sizes, dtype=torch.long, device=z.device)
    c = z.new_full((len(inner) + 2,), 1 / (len(inner) + 2))
    x = (c[2:] * inner / n).expand(len(z), -1)
    price = 1e-3 / torch.minimum(x, c[2:] - x)
    gamma = game.gamma[inner][:, inner]
    adversary = Player(inner, c, x, price, price, (game.copies @ z) / n - x[0] @ gamma)
    predictor = Player(inner, c, x, price, price, gamma @ x[0])
    return Point(game, adversary, predictor)


def _add_better_sizes(point: Point, weights: list[Tensor], values: list[Tensor]) -> Point:
    """Add the sizes that answer better than all current ones, by at least a tenth of the gap."""
    players = []
    has_grown = False
    for side in (0, 1):
        player = point.player(side)
        value = values[side]
        present = point.sizes[side]
        around = pad(value, (1, 1), value=-torch.inf)
        is_peak = (value >= around[:-2]) & (value >= around[2:])
        is_better = value > value[present].max() + 0.1 * point.gap
        is_new = is_peak & is_better
        is_new[present] = False
        new = is_new.nonzero().squeeze(1)
        if len(new):
            has_grown = True
            player = _add_sizes(player, new, weights[side][:, new], point)
        players.append(player)
    return Point(point.game, *players) if has_grown else point


def _add_sizes(player: Player, new: Tensor, weights: Tensor, point: Point) -> Player:
    """Add new sizes with a small chance, their samples with central values for the current mean product of a pair."""
    # A chance of ε disturbs the others by about ε, and puts the new sizes' own pairs off by gap / (columns·ε).
    chance = min((point.gap / point.columns) ** 0.5, 0.1)
    share = chance / len(new)
    product = point.product
    x, omega = _find_central(weights, new, point.game.copies, product / share)
    inside = share * x
    return Player(
        inner=torch.cat((player.inner, new)),
        c=torch.cat(((1 - chance) * player.c, omega.new_full((len(new),), share))),
        x=torch.cat(((1 - chance) * player.x, inside), 1),
        up=torch.cat((player.up, product / (share - inside)), 1),
        low=torch.cat((player.low, product / inside), 1),
        omega=torch.cat((player.omega, omega)),
    )


def _find_central(weights: Tensor, sizes: Tensor, copies: Tensor, t: float) -> tuple[Tensor, Tensor]:
    """Return x in (0, 1) with t/(1 − x) − t/x = weights − ω that sums to each size, and ω, by bisection."""
    reach = 2 * t * float(copies.sum())
    low = weights.min(0).values - reach
    high = weights.max(0).values + reach
    for _ in range(30):
        omega = (low + high) / 2
        d = (weights - omega) / t
        x = 2 / (2 - d + torch.sqrt(d * d + 4))
        is_too_large = copies @ x > sizes
        low = torch.where(is_too_large, omega, low)
        high = torch.where(is_too_large, high, omega)
    return x * (sizes / (copies @ x)), omega
