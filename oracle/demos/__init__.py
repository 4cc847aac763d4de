"""Demonstrations: recorded by the teacher, kept in HDF5, read for any learner."""
