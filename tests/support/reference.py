"""The slow float64 reference: one plain function per published equation, loops over samples and classes.

Matrices are float64 arrays of N samples (rows) by K classes (columns). Nothing here is shared with the
library, and nothing here is clever; that is the point. Where a formula is 0/0, the cell metrics return
``empty``. The papers, by the keys used below:

btg        Tsoi et al., Bridging the Gap: binary soft sets (S marks its supplement)
fbeta      Tsoi et al., Aligning Multiclass Neural Network Classifier Criterion: multi-class F-beta
sigmoidf1  Bénédict et al., sigmoidF1: multi-label
mfom       the appendix on maximal figure-of-merit learning with units against zeros
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias, overload

import numpy as np
import numpy.typing as npt

Matrix: TypeAlias = npt.NDArray[np.float64]
Row: TypeAlias = Sequence[float] | Matrix
Cells: TypeAlias = dict[str, list[float]]
CellMetric: TypeAlias = Callable[[float, float, float, float], float]

# --------------------------------------------------------------------------------------------- links


def sigmoid(u: float) -> float:
    """1 / (1 + exp(-u)) without overflow; g of [mfom, eq. 39], and [sigmoidf1, eq. 6] at beta=1, eta=0."""
    if u >= 0.0:
        return 1.0 / (1.0 + math.exp(-u))
    grown = math.exp(u)
    return grown / (1.0 + grown)


def logit(p: float) -> float:
    """Give log(p / (1 - p)), the inverse of :func:`sigmoid`, hence of [sigmoidf1, eq. 6] at beta=1, eta=0."""
    if p == 0.0:
        return -math.inf
    if p == 1.0:
        return math.inf
    return math.log(p) - math.log1p(-p)


def softmax(row: Row) -> list[float]:
    """exp(z_i) / sum_j exp(z_j) after subtracting the largest logit [fbeta, section 3, above eq. 3]."""
    largest = max(float(z) for z in row)
    grown = [math.exp(float(z) - largest) for z in row]
    total = sum(grown)
    return [g / total for g in grown]


# ------------------------------------------------------------------------------------ steps, binary


def _knots(tau: float, width: float) -> tuple[float, float]:
    """Where the middle piece starts and ends: tau -/+ width * tau_m / 2 [btg, eq. 24-25 at width=1]."""
    tau_m = min(tau, 1.0 - tau)
    return tau - width * tau_m / 2.0, tau + width * tau_m / 2.0


def linear_slope(p: float, tau: float, delta: float = 0.1, width: float = 1.0) -> float:
    """m1, m2 or m3, whichever piece p is in; a knot belongs to the middle piece [btg, above eq. 5]."""
    t1, t2 = _knots(tau, width)
    if p < t1:
        return delta / t1
    if p > t2:
        return delta / (1.0 - t2)
    return (1.0 - 2.0 * delta) / (width * min(tau, 1.0 - tau))


def linear_step(p: float, tau: float, delta: float = 0.1, width: float = 1.0) -> float:
    """Rise in three straight pieces from (0, 0) by (tau, 1/2) to (1, 1) [btg, eq. 5]; 0 < tau < 1, width > 0."""
    t1, t2 = _knots(tau, width)
    if p < t1:
        m1 = delta / t1
        value = p * m1
    elif p > t2:
        m3 = delta / (1.0 - t2)
        value = p * m3 + (1.0 - delta - m3 * t2)
    else:
        m2 = (1.0 - 2.0 * delta) / (width * min(tau, 1.0 - tau))
        value = p * m2 + (0.5 - m2 * tau)
    return value


def sigmoid_step(p: float, tau: float, k: float = 10.0) -> float:
    """Apply the sigmoid step 1 / (1 + exp(-k (p - tau))) [btg, section 3.1, below eq. 4]."""
    return sigmoid(k * (p - tau))


def logit_sigmoid(u: float, beta: float, eta: float) -> float:
    """S(u; beta, eta) = 1 / (1 + exp(-beta (u + eta))), a step on logits [sigmoidf1, eq. 6]."""
    return sigmoid(beta * (u + eta))


def table_step(p: float, tau: float, step: Callable[[float, float], float], decimals: int) -> float:
    """Look the step up at p cut down (not rounded) to so many decimals [btg, S section 3, on eq. 5]."""
    scale = 10.0**decimals
    return step(math.floor(p * scale) / scale, tau)


# -------------------------------------------------------------------------------- steps, multi-class


def _top_two_threshold(probabilities: list[float]) -> float:
    """Tau: the mean of the two largest probabilities of one sample [fbeta, section 4.1, above eq. 5]."""
    if len(probabilities) < 2:
        raise ValueError(f"two classes or more are needed, got {len(probabilities)}")
    first, second = sorted(probabilities, reverse=True)[:2]
    return (first + second) / 2.0


def _l1_normalised(row: list[float]) -> list[float]:
    """Divide by the sum of absolute values [fbeta, eq. 5]."""
    total = sum(abs(v) for v in row)
    return [v / total for v in row]


def top_two_row(z_row: Row, delta: float = 0.2, width: float = 1.0) -> list[float]:
    """Softmax, linear step at the sample's own tau, L1 normalisation [fbeta, eq. 2 and 5]."""
    probabilities = softmax(z_row)
    tau = _top_two_threshold(probabilities)
    return _l1_normalised([linear_step(p, tau, delta, width) for p in probabilities])


def top_two_sigmoid_row(z_row: Row, k: float = 10.0) -> list[float]:
    """Do as :func:`top_two_row` does, with the sigmoid step in the linear one's place [fbeta, eq. 5; btg, eq. 4]."""
    probabilities = softmax(z_row)
    tau = _top_two_threshold(probabilities)
    return _l1_normalised([sigmoid_step(p, tau, k) for p in probabilities])


# ---------------------------------------------------------------------------------------------- MFoM


def _per_class(value: float | Row, k: int) -> float:
    """Class k's alpha or beta, whether one number serves all classes or each has its own [mfom, before eq. 26]."""
    if isinstance(value, (int, float)):
        return float(value)
    return float(value[k])


def _has_competitors(y_row: list[float], used: list[bool]) -> bool:
    """Whether both means exist; if not, [mfom, eq. 40] or [mfom, eq. 41] is 0/0."""
    units = sum(y for y, u in zip(y_row, used, strict=True) if u)
    zeros = sum(1.0 - y for y, u in zip(y_row, used, strict=True) if u)
    return units > 0.0 and zeros > 0.0


def _misclassification_row(g: list[float], y_row: list[float], used: list[bool]) -> list[float]:
    """psi_k = -g_k + (1 - y_k) u + y_k v, u and v over the labels in use [mfom, eq. 39-43].

    Without competitors, and for a label that is not in use, psi_k = 1/2 - g_k, which asks no label.
    """
    classes = range(len(g))
    if not _has_competitors(y_row, used):
        return [0.5 - g[k] for k in classes]

    unit_sum = unit_count = zero_sum = zero_count = 0.0
    for k in classes:
        if used[k]:
            unit_sum += y_row[k] * math.exp(g[k])
            unit_count += y_row[k]
            zero_sum += (1.0 - y_row[k]) * math.exp(g[k])
            zero_count += 1.0 - y_row[k]
    u = math.log(unit_sum / unit_count)
    v = math.log(zero_sum / zero_count)

    psi = []
    for k in classes:
        if used[k]:
            psi.append(-g[k] + (1.0 - y_row[k]) * u + y_row[k] * v)
        else:
            psi.append(0.5 - g[k])
    return psi


def units_vs_zeros_row(
    z_row: Row,
    y_row: Row,
    alpha: float | Row = 1.0,
    beta: float | Row = 0.0,
    mask_row: Sequence[bool] | npt.NDArray[np.bool_] | None = None,
) -> list[float]:
    """Memberships 1 - l_k with l_k = sigmoid(alpha_k psi_k + beta_k) [mfom, eq. 26-28 and 39-43].

    ``mask_row`` is true where the label counts; the others take no part in the two means.
    """
    g = [sigmoid(float(z)) for z in z_row]
    labels = [float(y) for y in y_row]
    used = [True] * len(g) if mask_row is None else [bool(b) for b in mask_row]
    psi = _misclassification_row(g, labels, used)
    return [1.0 - sigmoid(_per_class(alpha, k) * psi[k] + _per_class(beta, k)) for k in range(len(g))]


def _mfom_sums(z: Matrix, y: Matrix, alpha: float | Row, beta: float | Row) -> tuple[float, float, float]:
    """TP, FP and |C| summed over all samples and classes [mfom, eq. 26, 27 and 31]."""
    n, classes = z.shape
    tp = fp = positives = 0.0
    for i in range(n):
        memberships = units_vs_zeros_row(z[i], y[i], alpha, beta)
        for k in range(classes):
            tp += memberships[k] * float(y[i, k])
            fp += memberships[k] * (1.0 - float(y[i, k]))
            positives += float(y[i, k])
    return tp, fp, positives


def mfom_micro_f1(z: Matrix, y: Matrix, alpha: float | Row = 1.0, beta: float | Row = 0.0) -> float:
    """E = 1 - 2 TP / (FP + TP + |C|) [mfom, eq. 32-33]; 1 where that is 0/0."""
    tp, fp, positives = _mfom_sums(z, y, alpha, beta)
    denominator = fp + tp + positives
    if denominator == 0.0:
        return 1.0
    return 1.0 - 2.0 * tp / denominator


def mfom_gradient(z: Matrix, y: Matrix, alpha: float | Row = 1.0, beta: float | Row = 0.0) -> Matrix:
    """dE/dz row by row as A diag(g') G diag(l') (w1 y - w2 (1 - y)) [mfom, eq. 34-38 and 44-46].

    A row without competitors has psi_k = 1/2 - g_k, so its G is minus the identity.
    """
    n, classes = z.shape
    gradient = np.zeros((n, classes))
    tp, fp, positives = _mfom_sums(z, y, alpha, beta)
    if fp + tp + positives == 0.0:
        return gradient
    a = 2.0 / (fp + tp + positives) ** 2  # eq. 35
    w1 = positives + fp
    w2 = tp

    for i in range(n):
        labels = [float(y[i, k]) for k in range(classes)]
        used = [True] * classes
        g = [sigmoid(float(z[i, k])) for k in range(classes)]
        psi = _misclassification_row(g, labels, used)

        # G of the matrix above eq. 45: row m is the variable z_m, column k the function psi_k. For labels of
        # 0 and 1 the bracket vanishes on the diagonal (eq. 44); for labels in between it does not.
        big_g = [[0.0] * classes for _ in range(classes)]
        if _has_competitors(labels, used):
            p = sum(labels[k] * math.exp(g[k]) for k in range(classes))
            b = sum((1.0 - labels[k]) * math.exp(g[k]) for k in range(classes))
            for m in range(classes):
                for k in range(classes):
                    bracket = (1.0 - labels[k]) * labels[m] / p + labels[k] * (1.0 - labels[m]) / b
                    big_g[m][k] = math.exp(g[m]) * bracket
        for k in range(classes):
            big_g[k][k] -= 1.0

        for m in range(classes):
            g_prime = g[m] * (1.0 - g[m])
            for k in range(classes):
                alpha_k = _per_class(alpha, k)
                error = sigmoid(alpha_k * psi[k] + _per_class(beta, k))
                error_prime = alpha_k * error * (1.0 - error)  # the diagonal of J_psi L, eq. 46
                blame = w1 * labels[k] - w2 * (1.0 - labels[k])  # J_L E, eq. 46
                gradient[i, m] += a * g_prime * big_g[m][k] * error_prime * blame
    return gradient


# ---------------------------------------------------------------------------------- counts, matrices


def _weight(w: Matrix | None, i: int, k: int) -> float:
    """Sample i's weight for class k, from none, one per sample or one per entry [sum of btg, eq. 6, weighted]."""
    if w is None:
        return 1.0
    if w.ndim == 1:
        return float(w[i])
    return float(w[i, k])


def counts(m: Matrix, y: Matrix, w: Matrix | None = None) -> Cells:
    """tp, fp, fn, tn per class, memberships against labels in [0, 1] [btg, eq. 2 and 6; sigmoidf1, eq. 3-5]."""
    n, classes = m.shape
    cells: Cells = {name: [0.0] * classes for name in ("tp", "fp", "fn", "tn")}
    for i in range(n):
        for k in range(classes):
            weight = _weight(w, i, k)
            membership = float(m[i, k])
            label = float(y[i, k])
            cells["tp"][k] += weight * membership * label
            cells["fp"][k] += weight * membership * (1.0 - label)
            cells["fn"][k] += weight * (1.0 - membership) * label
            cells["tn"][k] += weight * (1.0 - membership) * (1.0 - label)
    return cells


def confusion(m: Matrix, targets: Sequence[int] | npt.NDArray[np.int64], w: Matrix | None = None) -> Matrix:
    """Sum each sample's memberships into the row of its true class, columns predicted [fbeta, section 4.2, eq. 3]."""
    n, classes = m.shape
    matrix = np.zeros((classes, classes))
    for i in range(n):
        true = int(targets[i])
        for k in range(classes):
            matrix[true, k] += _weight(w, i, k) * float(m[i, k])
    return matrix


def one_vs_rest(matrix: Matrix) -> Cells:
    """Each class against all others, read off the d x d matrix [fbeta, eq. 3]."""
    d = matrix.shape[0]
    cells: Cells = {name: [0.0] * d for name in ("tp", "fp", "fn", "tn")}
    for k in range(d):
        for i in range(d):
            for j in range(d):
                entry = float(matrix[i, j])
                if i == k and j == k:
                    cells["tp"][k] += entry
                elif i == k:
                    cells["fn"][k] += entry
                elif j == k:
                    cells["fp"][k] += entry
                else:
                    cells["tn"][k] += entry
    return cells


# -------------------------------------------------------------------------------- metrics of the cells


def _ratio(numerator: float, denominator: float, empty: float) -> float:
    """Divide, or give ``empty`` for 0/0, which the papers leave open (say, precision in [btg, eq. 3])."""
    if denominator == 0.0:
        return empty
    return numerator / denominator


def accuracy(tp: float, fp: float, fn: float, tn: float, *, empty: float = 0.0) -> float:
    """(TP + TN) over everything [btg, eq. 3]."""
    return _ratio(tp + tn, tp + fp + fn + tn, empty)


def precision(tp: float, fp: float, fn: float, tn: float, *, empty: float = 0.0) -> float:
    """TP / (TP + FP) [btg, section 2, above eq. 3; sigmoidf1, table 5]."""
    return _ratio(tp, tp + fp, empty)


def recall(tp: float, fp: float, fn: float, tn: float, *, empty: float = 0.0) -> float:
    """TP / (TP + FN) [btg, section 2, above eq. 3; sigmoidf1, table 5]."""
    return _ratio(tp, tp + fn, empty)


def specificity(tp: float, fp: float, fn: float, tn: float, *, empty: float = 0.0) -> float:
    """TN / (TN + FP) [sigmoidf1, table 5]."""
    return _ratio(tn, tn + fp, empty)


def npv(tp: float, fp: float, fn: float, tn: float, *, empty: float = 0.0) -> float:
    """TN / (TN + FN), the negative predictive value [sigmoidf1, table 5]."""
    return _ratio(tn, tn + fn, empty)


def predicted_positive_rate(tp: float, fp: float, fn: float, tn: float, *, empty: float = 0.0) -> float:
    """(TP + FP) / total, the share of the rows that are predicted positive."""
    return _ratio(tp + fp, tp + fp + fn + tn, empty)


def f_beta(tp: float, fp: float, fn: float, tn: float, beta: float = 1.0, *, empty: float = 0.0) -> float:
    """(1 + b²) TP / ((1 + b²) TP + FP + b² FN) [fbeta, eq. 6; at b=1 btg, eq. 7-8 and sigmoidf1, eq. 7-8]."""
    b2 = beta * beta
    return _ratio((1.0 + b2) * tp, (1.0 + b2) * tp + fp + b2 * fn, empty)


def jaccard(tp: float, fp: float, fn: float, tn: float, *, empty: float = 0.0) -> float:
    """TP / (TP + FP + FN) [named in btg, section 4.1, below theorem 4.2; Jaccard 1912]."""
    return _ratio(tp, tp + fp + fn, empty)


def tversky(
    tp: float, fp: float, fn: float, tn: float, alpha: float = 0.5, beta: float = 0.5, *, empty: float = 0.0
) -> float:
    """TP / (TP + alpha FP + beta FN) [Tversky 1977; at 1/2, 1/2 it is btg, eq. 8]."""
    return _ratio(tp, tp + alpha * fp + beta * fn, empty)


def balanced_accuracy(tp: float, fp: float, fn: float, tn: float, *, empty: float = 0.0) -> float:
    """Mean of recall and specificity, or the one that exists [named in btg, section 4.1, below theorem 4.2]."""
    rates = []
    if tp + fn != 0.0:
        rates.append(tp / (tp + fn))
    if tn + fp != 0.0:
        rates.append(tn / (tn + fp))
    return _ratio(sum(rates), len(rates), empty)


def g_mean(tp: float, fp: float, fn: float, tn: float, *, empty: float = 0.0) -> float:
    """sqrt(recall * specificity) [named in btg, section 4.1, below theorem 4.2; Kubat and Matwin 1997]."""
    return math.sqrt(recall(tp, fp, fn, tn, empty=empty) * specificity(tp, fp, fn, tn, empty=empty))


def mcc(tp: float, fp: float, fn: float, tn: float, *, empty: float = 0.0) -> float:
    """(TP TN - FP FN) / sqrt(product of the four margins) [Matthews 1975; cells of btg, eq. 6].

    A margin of zero gives 0, chance, whatever ``empty`` says: it is taken only so that every metric can be
    called alike.
    """
    margins = (tp + fp, tp + fn, tn + fp, tn + fn)
    if 0.0 in margins:
        return 0.0
    return (tp * tn - fp * fn) / math.sqrt(math.prod(margins))


def kappa(tp: float, fp: float, fn: float, tn: float, *, empty: float = 0.0) -> float:
    """(p_o - p_e) / (1 - p_e), agreement beyond chance, times n² above and below [Cohen 1960; cells of btg, eq. 6]."""
    numerator = 2.0 * (tp * tn - fp * fn)
    denominator = (tp + fp) * (fp + tn) + (tp + fn) * (fn + tn)
    return _ratio(numerator, denominator, empty)


def informedness(tp: float, fp: float, fn: float, tn: float, *, empty: float = 0.0) -> float:
    """Recall + specificity - 1 [sigmoidf1, table 5 for the rates; Youden 1950]."""
    return recall(tp, fp, fn, tn, empty=empty) + specificity(tp, fp, fn, tn, empty=empty) - 1.0


def markedness(tp: float, fp: float, fn: float, tn: float, *, empty: float = 0.0) -> float:
    """Precision + npv - 1 [sigmoidf1, table 5 for the rates; Powers 2011]."""
    return precision(tp, fp, fn, tn, empty=empty) + npv(tp, fp, fn, tn, empty=empty) - 1.0


def fowlkes_mallows(tp: float, fp: float, fn: float, tn: float, *, empty: float = 0.0) -> float:
    """sqrt(precision * recall) [sigmoidf1, table 5 for the rates; Fowlkes and Mallows 1983]."""
    return math.sqrt(precision(tp, fp, fn, tn, empty=empty) * recall(tp, fp, fn, tn, empty=empty))


def savings(
    tp: float, fp: float, fn: float, tn: float, fp_cost: float = 1.0, fn_cost: float = 1.0, *, empty: float = 0.0
) -> float:
    """1 - cost / that of the cheaper of predicting all and none [Bahnsen 2014]."""
    cheaper = min(fp_cost * (fp + tn), fn_cost * (fn + tp))
    if cheaper == 0.0:
        return empty
    return 1.0 - (fp_cost * fp + fn_cost * fn) / cheaper


def detection_cost(
    tp: float,
    fp: float,
    fn: float,
    tn: float,
    miss: float = 1.0,
    false_alarm: float = 1.0,
    prior: float = 0.5,
    *,
    empty: float = 0.0,
) -> float:
    """1 - (miss prior FNR + false_alarm (1 - prior) FPR) / worst [NIST's detection cost; design, section 5, MFoM].

    A rate that does not exist costs nothing, whatever ``empty`` says: no positives, no misses; no negatives, no
    false alarms. ``empty`` is the value when no error has a price.
    """
    worst = miss * prior + false_alarm * (1.0 - prior)
    if worst == 0.0:
        return empty
    fnr = _ratio(fn, tp + fn, 0.0)
    fpr = _ratio(fp, fp + tn, 0.0)
    return 1.0 - (miss * prior * fnr + false_alarm * (1.0 - prior) * fpr) / worst


def worst_recall(tp: float, fp: float, fn: float, tn: float) -> float:
    """The smaller of recall and specificity; a rate that does not exist has no errors."""
    return 1.0 - max(_ratio(fn, tp + fn, 0.0), _ratio(fp, fp + tn, 0.0))


# ------------------------------------------------------------------------------- metrics of the matrix


def _margins(matrix: Matrix) -> tuple[list[float], list[float]]:
    """How often each class is true (row sums) and predicted (column sums) [fbeta, section 3, above eq. 3]."""
    d = matrix.shape[0]
    true = [sum(float(matrix[i, j]) for j in range(d)) for i in range(d)]
    predicted = [sum(float(matrix[i, j]) for i in range(d)) for j in range(d)]
    return true, predicted


def _recalls(matrix: Matrix) -> list[float]:
    """Recall of every class that has true samples [fbeta, eq. 3]."""
    true, _ = _margins(matrix)
    return [float(matrix[k, k]) / true[k] for k in range(matrix.shape[0]) if true[k] != 0.0]


def matrix_accuracy(matrix: Matrix, *, empty: float = 0.0) -> float:
    """Diagonal over everything [btg, eq. 3, for d classes on the matrix of fbeta, eq. 3]."""
    true, _ = _margins(matrix)
    return _ratio(sum(float(matrix[k, k]) for k in range(matrix.shape[0])), sum(true), empty)


def matrix_balanced_accuracy(matrix: Matrix, *, empty: float = 0.0) -> float:
    """Mean recall of the classes that have true samples [on the matrix of fbeta, eq. 3]."""
    recalls = _recalls(matrix)
    return _ratio(sum(recalls), len(recalls), empty)


def matrix_g_mean(matrix: Matrix, *, empty: float = 0.0) -> float:
    """Geometric mean of the recalls of the classes that have true samples [on the matrix of fbeta, eq. 3]."""
    recalls = _recalls(matrix)
    if not recalls:
        return empty
    return math.prod(recalls) ** (1.0 / len(recalls))


def matrix_mcc(matrix: Matrix) -> float:
    """R_K, the correlation of true and predicted class, on the matrix of [fbeta, eq. 3] [Gorodkin 2004].

    0 when the truth or the prediction knows only one class.
    """
    d = matrix.shape[0]
    true, predicted = _margins(matrix)
    agreed = sum(float(matrix[k, k]) for k in range(d)) * sum(true)
    chance = sum(true[k] * predicted[k] for k in range(d))
    true_spread = predicted_spread = 0.0  # n² - sum of squares, written so that one class alone gives exactly 0
    for k in range(d):
        for j in range(d):
            if k != j:
                true_spread += true[k] * true[j]
                predicted_spread += predicted[k] * predicted[j]
    if true_spread == 0.0 or predicted_spread == 0.0:
        return 0.0
    return (agreed - chance) / math.sqrt(true_spread * predicted_spread)


def _weighted_kappa(matrix: Matrix, penalty: Callable[[int, int], float], empty: float) -> float:
    """1 - penalty observed / penalty expected by chance, on the matrix of [fbeta, eq. 3] [Cohen 1968]."""
    d = matrix.shape[0]
    true, predicted = _margins(matrix)
    n = sum(true)
    observed = expected = 0.0
    for i in range(d):
        for j in range(d):
            observed += penalty(i, j) * float(matrix[i, j]) * n
            expected += penalty(i, j) * true[i] * predicted[j]
    if expected == 0.0:
        return empty
    return 1.0 - observed / expected


def matrix_kappa(matrix: Matrix, *, empty: float = 0.0) -> float:
    """Agreement beyond chance, every error alike, on the matrix of [fbeta, eq. 3] [Cohen 1960]."""
    return _weighted_kappa(matrix, lambda i, j: 0.0 if i == j else 1.0, empty)


def matrix_quadratic_kappa(matrix: Matrix, *, empty: float = 0.0) -> float:
    """Agreement beyond chance, an error i for j costing (i - j)², on the matrix of [fbeta, eq. 3] [Cohen 1968]."""
    return _weighted_kappa(matrix, lambda i, j: float((i - j) ** 2), empty)


# ------------------------------------------------------------------------------------------- averages


@overload
def average(
    values: Sequence[float],
    positives: Sequence[float],
    kind: Literal["macro", "weighted"],
    labels: Sequence[int] | None = None,
    empty_classes: Literal["count", "skip"] = "count",
) -> float: ...
@overload
def average(
    values: Sequence[float],
    positives: Sequence[float],
    kind: None,
    labels: Sequence[int] | None = None,
    empty_classes: Literal["count", "skip"] = "count",
) -> list[float]: ...
def average(
    values: Sequence[float],
    positives: Sequence[float],
    kind: Literal["macro", "weighted"] | None,
    labels: Sequence[int] | None = None,
    empty_classes: Literal["count", "skip"] = "count",
) -> float | list[float]:
    """Average over classes: macro [fbeta, eq. 4; sigmoidf1, eq. 10, "micro" there], weighted [sigmoidf1, eq. 11].

    Weighted divides by the sum of positives, which eq. 11 forgets; ``empty_classes="skip"`` leaves classes without
    positives out of macro; no class or no weight left gives 0. None keeps the classes, in the order of labels.
    """
    chosen = list(range(len(values))) if labels is None else list(labels)
    if kind is None:
        return [values[k] for k in chosen]
    total = weight = 0.0
    for k in chosen:
        if kind == "weighted":
            share = positives[k]
        elif empty_classes == "skip" and positives[k] == 0.0:
            share = 0.0
        else:
            share = 1.0
        total += share * values[k]
        weight += share
    return _ratio(total, weight, 0.0)


def micro(cells: Cells, metric: CellMetric, labels: Sequence[int] | None = None) -> float:
    """Pool the cells of all (chosen) classes, then one metric [mfom, eq. 25; sigmoidf1, eq. 9, "macro" there]."""
    chosen = list(range(len(cells["tp"]))) if labels is None else list(labels)
    tp, fp, fn, tn = (sum(cells[name][k] for k in chosen) for name in ("tp", "fp", "fn", "tn"))
    return metric(tp, fp, fn, tn)


def samples(
    m: Matrix, y: Matrix, metric: CellMetric, w: Matrix | None = None, mask: npt.NDArray[np.bool_] | None = None
) -> float:
    """Mean over rows of the metric of that row's own cells, those of [sigmoidf1, eq. 5] summed along the row.

    A row counts by the mean weight of its labels, its cells by the weights divided by that mean; a label that
    ``mask`` leaves out (false) is absent from both. A row with nothing left counts 0; no row left gives 0.
    """
    n, classes = m.shape
    total = weight = 0.0
    for i in range(n):
        there = [k for k in range(classes) if mask is None or mask[i, k]]
        share = _ratio(sum(_weight(w, i, k) for k in there), len(there), 0.0)
        if share == 0.0:
            continue
        inside = np.array([[_weight(w, i, k) / share for k in there]])
        row = counts(m[i : i + 1, there], y[i : i + 1, there], inside)
        total += share * micro(row, metric)
        weight += share
    return _ratio(total, weight, 0.0)


# -------------------------------------------------------------------------------------------- checking


def numeric_gradient(f: Callable[[Matrix], float], x: Matrix, eps: float = 1e-6) -> Matrix:
    """Central differences (f(x + eps) - f(x - eps)) / (2 eps), one entry at a time, to hold against [mfom, eq. 38]."""
    gradient = np.zeros(x.shape)
    for index in np.ndindex(*x.shape):
        above = np.array(x, dtype=np.float64)
        below = np.array(x, dtype=np.float64)
        above[index] += eps
        below[index] -= eps
        gradient[index] = (f(above) - f(below)) / (2.0 * eps)
    return gradient


# ------------------------------------------------------------------------------------------- ranking


def _soft_curve(
    p: Row, y: Row, k: int, step: Callable[[float, float], float], w: Row
) -> tuple[list[float], list[float], float, float]:
    """TP and FP at tau = 1/k ... (k-1)/k, and P and N."""
    tp, fp = [], []
    for i in range(1, k):
        tp.append(sum(w[j] * y[j] * step(p[j], i / k) for j in range(len(p))))
        fp.append(sum(w[j] * (1.0 - y[j]) * step(p[j], i / k) for j in range(len(p))))
    positives = sum(w[j] * y[j] for j in range(len(p)))
    return tp, fp, positives, sum(w) - positives


def soft_auroc(z: Row, y: Row, k: int, step: Callable[[float, float], float], w: Row | None = None) -> float:
    """Trapezoids between tau = 0, where both rates are 1, and tau = 1, where both are 0 [btg, S eq. 18]."""
    weights = [1.0] * len(z) if w is None else w
    tp, fp, positives, negatives = _soft_curve([sigmoid(u) for u in z], y, k, step, weights)
    tpr = [1.0, *(t / positives for t in tp), 0.0]
    fpr = [1.0, *(f / negatives for f in fp), 0.0]
    return 0.5 * sum((fpr[i - 1] - fpr[i]) * (tpr[i] + tpr[i - 1]) for i in range(1, k + 1))


def soft_average_precision(
    z: Row, y: Row, k: int, step: Callable[[float, float], float], w: Row | None = None
) -> float:
    """Each loss of recall from tau to the next one at the precision of the first; everything is predicted at 0."""
    weights = [1.0] * len(z) if w is None else w
    tp, fp, positives, negatives = _soft_curve([sigmoid(u) for u in z], y, k, step, weights)
    recalls = [1.0, *(t / positives for t in tp), 0.0]
    precisions = [
        positives / (positives + negatives),
        *(_ratio(t, t + f, 0.0) for t, f in zip(tp, fp, strict=True)),
    ]
    return sum((recalls[i] - recalls[i + 1]) * precisions[i] for i in range(k))


def wmw(x: Row, y: Row, gamma: float, power: int, w: Row | None = None) -> float:
    """(-(x_i - y_j - gamma))^p where x_i - y_j < gamma, averaged over pairs [Yan et al. 2003]."""
    weights = [1.0] * len(x) if w is None else w
    total = pairs = 0.0
    for i in range(len(x)):
        for j in range(len(x)):
            pair = weights[i] * y[i] * weights[j] * (1.0 - y[j])
            pairs += pair
            if x[i] - x[j] < gamma:
                total += pair * (-(x[i] - x[j] - gamma)) ** power
    return total / pairs
