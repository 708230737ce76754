"""A live window for `render_mode="human"`, with tkinter from the standard library."""

import numpy as np

from counterpoint.core.errors import UsageError


class Window:
    """Shows one picture after another until the program or the viewer closes it."""

    def __init__(self, title: str = "counterpoint") -> None:
        try:
            import tkinter
        except ImportError as error:
            raise UsageError("a live window needs Python's tkinter: install it, or use render_mode='rgb_array'.") from error
        try:
            self._root = tkinter.Tk()
        except tkinter.TclError as error:
            raise UsageError(f"there is no display for a live window ({error}): use render_mode='rgb_array'.") from error
        self._tkinter = tkinter
        self._root.title(title)
        self._root.protocol("WM_DELETE_WINDOW", self.close)
        self._label = tkinter.Label(self._root, borderwidth=0)
        self._label.pack()

    def show(self, rgb: np.ndarray) -> None:
        """Shows [H, W, 3] bytes; does nothing once the window is closed."""
        if self._root is None:
            return
        height, width, _ = rgb.shape
        self._image = self._tkinter.PhotoImage(data=b"P6 %d %d 255 " % (width, height) + np.ascontiguousarray(rgb).tobytes())
        self._label.configure(image=self._image)  # Tk keeps no reference to the image, so self._image does
        self._root.update()

    def close(self) -> None:
        if self._root is not None:
            self._root.destroy()
            self._root = None
