"""What the paper's authors published, to stand beside ours.

Petruzzellis, Chen and Testolin, "Learning to solve arithmetic problems with a virtual abacus".
Where the paper only draws a value, as most of its Fig. 4, there is none here.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Fig. 4 and section 3.3: errors of the best agent at 16 digits, of 100,000 operations.
ERRORS_AT_16 = (601, 100_000)
#: Digits whose error rate Fig. 4 draws.
DRAWN_DIGITS = (1, 2, 4, 8, 16)
#: Table 1: most operations solved in an episode during training.
LONGEST_RUNS = {"both": 1145, "add": 907, "subtract": 675}
#: The levels of supervision behind `both`, as Table 1 names them.
LONGEST_RUNS_BY_LEVEL = {"dense": 515, "no_of": 1145, "no_of_sp": 773}
#: Table 2, in per cent.
ERROR_CLASSES = {
    "simple operation": 32.9,
    "signpost right": 27.7,
    "carry": 27.3,
    "signpost left": 12.1,
}
#: Fig. 5 is a picture; section 3.3 says this of it.
ERRORS_BY_COLUMN = "most in the second column, then a pattern with the period of the encoding"


@dataclass(frozen=True)
class PublishedExample:
    """A column of Table 3: state, input, output, truth, places of wrong digits in the output."""

    state: str
    input: str
    output: str
    truth: str
    wrong_places: tuple[int, ...]


#: Table 3. Its marks are kept as printed.
EXAMPLES = (
    PublishedExample(
        "2204010440402424", "+3422111404102300", "11131122400010024", "11131122400010224", (14,)
    ),
    PublishedExample(
        "3014100322010344",
        "+1342122200324413",
        "3014100322340312",
        "4411223022340312",
        tuple(range(8)),
    ),
    PublishedExample(
        "4110012024223441",
        "-1300014214322224",
        "4041442304401212",
        "2304442304401212",
        tuple(range(4)),
    ),
    PublishedExample(
        "3342443241400324", "-3231303122242113", "111040114103211", "111140114103211", (3,)
    ),
)
