"""The page in the browser: a run's world and teams as one HTML file.

share.py       `share`: a run becomes one HTML file
program.py     what a page computes: world and teams as translated functions
javascript.py  JAX functions as JavaScript on typed arrays
drawing.py     a world's `draw` as JavaScript, and which shapes can be dragged
curves.py      learning curves and tables inside the page

The page's own code is plain JavaScript modules beside these files: runtime.js (arithmetic of translated programs), stage.js (an
episode), painter.js (pictures on a canvas) and page.js (controls), with page.html and page.css. There is no build step: `share`
puts them into the file as they are.
"""
