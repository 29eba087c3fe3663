"""What GStreamer's Python plugin loader imports: registers the element ``personaplex``.

The loader runs this in the system's Python, which knows nothing of where this package lies. The
package's folder goes to the end of the path: the system's own modules stay the first choice.
"""

import sys
from pathlib import Path

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstBase", "1.0")
sys.path.append(str(Path(__file__).resolve().parents[3]))

from livekit_personaplex.gst.element import register  # noqa: E402

__gstelementfactory__ = register()
