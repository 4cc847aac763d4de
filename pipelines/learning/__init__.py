"""The learners that jobs share: networks, policy, cloning, fine-tuning, runs and their files."""
