"""Pictures, films and plots. Nothing here imports jax or needs a display, except the live window.

render.py     pictures of an environment as PNG, SVG, GIF and MP4 files
drawing.py    a drawing as plain data, converted to pixels or SVG
plots.py      learning curves and comparisons of runs
comparison.py figures that compare groups of runs
timeline.py   the tasks of distributed learners over time
window.py     a live window for `render_mode="human"`
"""
