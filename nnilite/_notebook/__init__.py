"""What a notebook shows.

html         experiments, trials and results as HTML
live_output  progress, renewed in its place
"""
