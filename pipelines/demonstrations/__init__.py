"""What the jobs around demonstrations share: their summary, their traces, their exports."""
