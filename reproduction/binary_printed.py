"""What the binary soft-set paper prints, by table: a line for each data set and its metrics, then one for each row.

A figure is a mean and, if there is one, a standard deviation. The paper's "Kaggle" is creditcard, all of its rows.
"""

from __future__ import annotations

PRINTED = {
    "btg-1": """
cocktailparty: f1, accuracy, auroc
F1 | .75 .01 | .85 .01 | .82 .01
AP-Perf | .30 .06 | .76 .01 | .60 .02
Accuracy | .70 .02 | .85 .01 | .78 .01
AUROC | .51 .01 | .41 .01 | .57 .00
WMW | .01 .03 | .70 .03 | .50 .00
BCE | .70 .02 | .85 .01 | .78 .01
adult: f1, accuracy, auroc
F1 | .63 .02 | .78 .04 | .78 .02
AP-Perf | .16 .02 | .78 .00 | .55 .01
Accuracy | .35 .04 | .81 .01 | .61 .02
AUROC | .42 .01 | .32 .02 | .55 .01
WMW | .00 .00 | .76 .00 | .50 .00
BCE | .26 .06 | .80 .01 | .58 .02
mammography: f1, accuracy, auroc
F1 | .63 .04 | .98 .00 | .78 .03
AP-Perf | .46 .08 | .98 .00 | .66 .04
Accuracy | .00 .00 | .97 .00 | .50 .00
AUROC | .11 .01 | .18 .04 | .57 .02
WMW | .00 .01 | .88 .12 | .50 .00
BCE | .56 .11 | .99 .00 | .71 .06
creditcard: f1, accuracy, auroc
F1 | .83 .02 | 1.00 .00 | .90 .02
AP-Perf | .76 .06 | 1.00 .00 | .83 .04
Accuracy | .62 .33 | 1.00 .00 | .78 .15
AUROC | .06 .01 | .11 .00 | .55 .00
WMW | .00 .00 | .93 .15 | .50 .00
BCE | .50 .33 | 1.00 .00 | .73 .16
""",
    "btg-2": """
CIFAR-10 transportation: f1, accuracy
F1 | .91 .00 | .93 .00
Accuracy | .92 .00 | .93 .00
BCE | .88 .01 | .91 .00
CIFAR-10 frog: f1, accuracy
F1 | .73 .01 | .95 .00
Accuracy | .74 .01 | .95 .00
BCE | .59 .04 | .94 .00
""",
    "btg-3": """
mammography: f1, f2, f3, precision, recall
F1 | .61 .06 | .57 .06 | .56 .06 | .70 .06 | .55 .07
F2 | .63 .04 | .67 .04 | .69 .04 | .57 .05 | .71 .04
F3 | .57 .03 | .69 .02 | .75 .02 | .44 .04 | .81 .03
""",
    "btg-4": """
cocktailparty: f1, accuracy, auroc
F1 sigmoid | .73 .02 | .84 .01 | .81 .01
Accuracy sigmoid | .71 .02 | .85 .01 | .78 .01
AUROC sigmoid | .55 .02 | .48 .01 | .60 .00
adult: f1, accuracy, auroc
F1 sigmoid | .61 .04 | .74 .07 | .77 .03
Accuracy sigmoid | .36 .03 | .81 .00 | .61 .01
AUROC sigmoid | .46 .01 | .42 .00 | .59 .01
mammography: f1, accuracy, auroc
F1 sigmoid | .50 .29 | .89 .16 | .75 .14
Accuracy sigmoid | .00 .00 | .98 .00 | .50 .00
AUROC sigmoid | .22 .01 | .34 .00 | .63 .01
creditcard: f1, accuracy, auroc
F1 sigmoid | .81 .02 | 1.00 .00 | .89 .02
Accuracy sigmoid | .72 .25 | 1.00 .00 | .84 .12
AUROC sigmoid | .25 .01 | .33 .00 | .64 .00
""",
    "btg-5": """
synthetic 5%: accuracy, f1
F1, B = 128 | .95 .00 | .52 .04
F1 sigmoid, B = 128 | .84 .16 | .32 .18
Accuracy, B = 128 | .95 .00 | .00 .00
Accuracy sigmoid, B = 128 | .95 .01 | .00 .00
BCE, B = 128 | .96 .01 | .22 .10
F1, B = 1024 | .95 .01 | .50 .06
F1 sigmoid, B = 1024 | .78 .18 | .27 .22
Accuracy, B = 1024 | .95 .01 | .00 .00
Accuracy sigmoid, B = 1024 | .95 .00 | .00 .00
BCE, B = 1024 | .95 .01 | .21 .11
F1, B = 2048 | .95 .01 | .52 .05
F1 sigmoid, B = 2048 | .77 .18 | .24 .20
Accuracy, B = 2048 | .95 .01 | .00 .00
Accuracy sigmoid, B = 2048 | .95 .01 | .00 .00
BCE, B = 2048 | .95 .01 | .12 .08
F1, B = 4096 | .95 .01 | .48 .04
F1 sigmoid, B = 4096 | .74 .17 | .21 .17
Accuracy, B = 4096 | .95 .01 | .00 .00
Accuracy sigmoid, B = 4096 | .96 .01 | .00 .00
BCE, B = 4096 | .95 .00 | .09 .06
synthetic 33%: accuracy, f1
F1, B = 128 | .84 .01 | .77 .01
F1 sigmoid, B = 128 | .84 .01 | .77 .01
Accuracy, B = 128 | .85 .01 | .77 .01
Accuracy sigmoid, B = 128 | .85 .00 | .77 .01
BCE, B = 128 | .84 .01 | .74 .01
F1, B = 1024 | .84 .01 | .78 .01
F1 sigmoid, B = 1024 | .83 .01 | .76 .01
Accuracy, B = 1024 | .85 .01 | .77 .01
Accuracy sigmoid, B = 1024 | .85 .01 | .77 .01
BCE, B = 1024 | .85 .01 | .74 .02
F1, B = 2048 | .84 .00 | .78 .01
F1 sigmoid, B = 2048 | .83 .02 | .77 .02
Accuracy, B = 2048 | .86 .01 | .78 .01
Accuracy sigmoid, B = 2048 | .85 .01 | .77 .01
BCE, B = 2048 | .84 .01 | .74 .01
F1, B = 4096 | .85 .01 | .78 .01
F1 sigmoid, B = 4096 | .83 .01 | .77 .01
Accuracy, B = 4096 | .85 .01 | .78 .01
Accuracy sigmoid, B = 4096 | .85 .01 | .77 .01
BCE, B = 4096 | .85 .01 | .74 .02
""",
    "btg-6": """
adult: f1, f2, f3, precision, recall
F1 | .64 .01 | .72 .03 | .75 .05 | .54 .04 | .78 .07
F2 | .43 .02 | .65 .02 | .79 .01 | .27 .02 | 1.00 .00
F3 | .39 .01 | .61 .01 | .76 .01 | .24 .01 | 1.00 .00
creditcard: f1, f2, f3, precision, recall
F1 | .82 .04 | .80 .04 | .80 .04 | .84 .04 | .79 .04
F2 | .81 .02 | .80 .03 | .80 .03 | .83 .02 | .79 .03
F3 | .82 .03 | .81 .04 | .81 .04 | .82 .04 | .81 .04
cocktailparty: f1, f2, f3, precision, recall
F1 | .74 .01 | .75 .02 | .75 .02 | .73 .03 | .75 .02
F2 | .68 .02 | .80 .01 | .85 .01 | .54 .03 | .91 .01
F3 | .60 .02 | .77 .01 | .85 .01 | .43 .02 | .95 .02
""",
    "btg-7": """
cocktailparty: accuracy, f1, auroc
Dice | .68 .04 | .49 .02 | .56 .02
SVMperf error | .82 | .66 | .75
SVMperf F1 | .78 | .69 | .78
SVMperf ROC | .76 | .67 | .77
adult: accuracy, f1, auroc
Dice | .50 .15 | .40 .02 | .55 .02
SVMperf error | .81 | .60 | .75
SVMperf F1 | .51 | .48 | .66
SVMperf ROC | .32 | .41 | .56
mammography: accuracy, f1, auroc
Dice | .85 .17 | .19 .09 | .65 .06
SVMperf error | .98 | .51 | .68
SVMperf F1 | .98 | .59 | .82
SVMperf ROC | .61 | .11 | .77
creditcard: accuracy, f1, auroc
Dice | .67 .15 | .10 .06 | .76 .06
SVMperf error | 1.00 | .80 | .89
SVMperf F1 | 1.00 | .80 | .90
SVMperf ROC | .67 | .01 | .83
""",
    "btg-9": """
cocktailparty: f1, accuracy, weight of negatives, weight of positives
F1 | .72 .01 | .80 .01 | .72 | 1.65
F1 sigmoid | .71 .03 | .77 .06
Accuracy | .75 .02 | .83 .01
Accuracy sigmoid | .72 .02 | .82 .02
BCE | .75 .02 | .85 .01
adult: f1, accuracy, weight of negatives, weight of positives
F1 | .45 .03 | .41 .06 | .66 | 2.07
F1 sigmoid | .42 .02 | .36 .05
Accuracy | .57 .04 | .66 .06
Accuracy sigmoid | .54 .03 | .61 .06
BCE | .56 .05 | .80 .02
mammography: f1, accuracy, weight of negatives, weight of positives
F1 | .31 .04 | .90 .01 | .51 | 21.55
F1 sigmoid | .28 .05 | .88 .04
Accuracy | .34 .04 | .92 .01
Accuracy sigmoid | .35 .04 | .92 .01
BCE | .43 .06 | .95 .01
creditcard: f1, accuracy, weight of negatives, weight of positives
F1 | .13 .02 | .98 .01 | .50 | 290.25
F1 sigmoid | .41 .17 | .99 .01
Accuracy | .42 .08 | 1.00 .00
Accuracy sigmoid | .38 .11 | .99 .00
BCE | .21 .05 | .99 .00
""",
    "btg-11": """
cocktailparty: f1, accuracy, rows, positives
F1 | .72 .02 | .80 .01 | 4284 | 2142
F1 sigmoid | .71 .02 | .79 .01
Accuracy | .74 .02 | .83 .02
Accuracy sigmoid | .73 .03 | .82 .02
BCE | .75 .02 | .85 .01
adult: f1, accuracy, rows, positives
F1 | .45 .02 | .42 .05 | 39564 | 19782
F1 sigmoid | .43 .02 | .39 .04
Accuracy | .55 .06 | .62 .10
Accuracy sigmoid | .53 .04 | .59 .07
BCE | .59 .03 | .81 .02
mammography: f1, accuracy, rows, positives
F1 | .38 .07 | .93 .02 | 13970 | 6985
F1 sigmoid | .06 .03 | .48 .04
Accuracy | .49 .07 | .96 .01
Accuracy sigmoid | .49 .06 | .96 .01
BCE | .53 .04 | .97 .00
creditcard: f1, accuracy, rows, positives
F1 | .73 .06 | 1.00 .00 | 363894 | 181947
F1 sigmoid | .69 .07 | 1.00 .00
Accuracy | .75 .04 | 1.00 .00
Accuracy sigmoid | .74 .04 | 1.00 .00
BCE | .57 .06 | 1.00 .00
""",
    "btg-12": """
CIFAR-10 transportation: accuracy, f1
Dice | .521 .020 | .625 .010
Dice sigmoid | .546 .040 | .638 .020
CIFAR-10 frog: accuracy, f1
Dice | .230 .020 | .205 .000
Dice sigmoid | .277 .040 | .216 .010
""",
}


def read_printed(table: str, creditcard: str) -> dict[tuple[str, str, str], tuple[float, float | None]]:
    """Return a table's figures by row, data set and metric; ``creditcard`` is the name of what stands for Kaggle's."""
    found: dict[tuple[str, str, str], tuple[float, float | None]] = {}
    data, metrics = "", [""]
    for line in PRINTED[table].strip().splitlines():
        if "|" not in line:
            data, _, names = line.partition(": ")
            data, metrics = (creditcard if data == "creditcard" else data), names.split(", ")
            continue
        row, *figures = line.split(" | ")
        for metric, figure in zip(metrics, figures, strict=False):
            mean, *sd = figure.split()
            found[row, data, metric] = (float(mean), float(sd[0]) if sd else None)
    return found
