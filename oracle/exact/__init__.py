"""All observations of the algorithm, and certificates of policies that are right on them.

The limits that commands show in their help are defined here: they can be read without the compiled
modules.
"""

#: Most frames of which all observations are enumerated.
MAX_FRAMES = 6
#: Situations after which the exploration of a policy gives up; ten million take less than 4 GB.
SITUATIONS_LIMIT = 10_000_000
