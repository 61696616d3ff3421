"""The budgets of the design, measured as ratios against a baseline in the same run."""
