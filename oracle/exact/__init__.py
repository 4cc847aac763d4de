"""What the algorithm can ever meet, and certificates of policies that know all of it."""
