"""The comparison job: joins comparisons of primary and shadow with late labels, and says how they do. A Faust app."""
