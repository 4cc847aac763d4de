"""All observations of the algorithm, and certificates of policies that are right on them."""
