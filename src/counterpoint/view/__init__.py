"""The page in the browser: a run's world and teams as one HTML file, and all runs of a folder on this machine.

share.py       `share`: a run becomes one HTML file
program.py     what a page computes: world and teams as translated functions
javascript.py  JAX functions as JavaScript on typed arrays
drawing.py     a world's `draw` as JavaScript, and which shapes can be dragged
curves.py      learning curves and tables inside the page
server.py      `serve`: the runs in a folder as a page on this machine (the extra `view`)
opened.py      `view_runs`: that page from Python, served by a thread
guard.py       who may ask that server, and what its page may do
catalogue.py   the runs in a folder, read again only where files have changed
charts.py      curves and statistics of chosen runs
stages.py      the stage of any run, with every policy that it kept
advice.py      what is wrong with a run, and what to do about it

The page's own code is plain JavaScript modules beside these files: runtime.js (arithmetic of translated programs), stage.js (an
episode), painter.js (pictures on a canvas) and page.js (controls), with page.html and page.css. There is no build step: `share`
puts them into the file as they are. The page of `view` is in app/, modules too, which the server hands out as they are.
"""
