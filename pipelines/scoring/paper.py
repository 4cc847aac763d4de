"""The published figures of the paper, for comparison.

Petruzzellis, Chen and Testolin, "Learning to solve arithmetic problems with a virtual abacus".
Values that the paper only draws, such as most of its Fig. 4, are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Fig. 4 and section 3.3: errors and operations of the best agent at 16 digits.
ERRORS_AT_16 = (601, 100_000)
#: Digits with an error rate in Fig. 4.
DRAWN_DIGITS = (1, 2, 4, 8, 16)
#: Table 1: most operations solved in an episode during training.
LONGEST_RUNS = {"both": 1145, "add": 907, "subtract": 675}
#: The same with both operations, by level of supervision.
LONGEST_RUNS_BY_LEVEL = {"dense": 515, "no_of": 1145, "no_of_sp": 773}
#: Table 2, in per cent.
ERROR_CLASSES = {
    "simple operation": 32.9,
    "signpost right": 27.7,
    "carry": 27.3,
    "signpost left": 12.1,
}
#: Section 3.3 on Fig. 5, which is a picture.
ERRORS_BY_COLUMN = "most in the second column, then a pattern with the period of the encoding"


@dataclass(frozen=True)
class ErrorExample:
    """A failed operation in numerals of the base, as a column of Table 3."""

    state: str
    input: str
    output: str
    truth: str
    #: Places of wrong digits in the output, from its left end.
    wrong_places: tuple[int, ...]


#: Table 3, with its marks as printed.
EXAMPLES = (
    ErrorExample(
        "2204010440402424", "+3422111404102300", "11131122400010024", "11131122400010224", (14,)
    ),
    ErrorExample(
        "3014100322010344",
        "+1342122200324413",
        "3014100322340312",
        "4411223022340312",
        tuple(range(8)),
    ),
    ErrorExample(
        "4110012024223441",
        "-1300014214322224",
        "4041442304401212",
        "2304442304401212",
        tuple(range(4)),
    ),
    ErrorExample(
        "3342443241400324", "-3231303122242113", "111040114103211", "111140114103211", (3,)
    ),
)
