"""The GStreamer element ``personaplex``: a conversation with a running engine between two pads.

Install (Debian's packages; the element needs neither torch nor livekit)::

    apt-get install gstreamer1.0-tools gstreamer1.0-plugins-base gstreamer1.0-plugins-good \\
        gstreamer1.0-python3-plugin-loader python3-gst-1.0 gir1.2-gst-plugins-base-1.0 \\
        python3-aiohttp python3-numpy

GStreamer's plugin loader runs the system's Python, not this package's virtual environment, and
looks for elements in the folder ``python`` of every folder in GST_PLUGIN_PATH. So it is told where
the package lies, and takes aiohttp and numpy from the system::

    export GST_PLUGIN_PATH=/where/livekit_personaplex/lies/livekit_personaplex/gst
    gst-inspect-1.0 personaplex

Two things look worse than they are. In a shell with an *activated* virtual environment the loader
finds that environment's Python and says "pygobject initialization failed": deactivate it first (or
make it with ``/usr/bin/python3 -m venv --system-site-packages``). And GStreamer says once for every
element written in Python that it "should be floating": PyGObject's fault, without consequence.

A recording, answered as ``livekit-personaplex offline`` answers it, sample for sample::

    gst-launch-1.0 filesrc location=question.wav ! decodebin ! audioconvert ! audioresample \\
        ! personaplex engine=unix:/run/personaplex.sock persona="You work for a library." \\
        ! wavenc ! filesink location=answer.wav

Pads. ``sink`` and ``src`` carry 24 kHz mono S16LE. ``text`` is there on request: UTF-8 text with
the time of the frame that it belongs to. One thread serves both source pads, so each needs a queue
behind it when both are linked: ``p.src ! queue ! ... p.text ! queue ! ...``.

Time. Output has the running time of the input: the agent's frame n (80 ms) was decided from the
caller's frames before n, and as much comes out as went in. With a live source the pipeline's clock
sets the pace: what the caller did not send by then is silence (so silence suppression needs nothing
special), the agent's frame that is not there in time is replaced by silence and comes next, and the
latency is that of the source and 100 ms. Otherwise the engine sets the pace and nothing is lost.

The session. READY to PAUSED opens it, which blocks until the agent knows who it is (10 s at most);
PAUSED to READY closes it. An element message ``personaplex-session`` names it and its seed. What
goes wrong is an error message of the element with the engine's own words. A flush forgets what
waits and keeps the conversation. The property ``stats`` counts what was late.

Who speaks. ``first-speaker`` and ``greeting`` say how a session begins. In mid-call the action
signal ``say`` gives the agent words, which it says next, in its own voice and at its pace::

    number = element.emit("say", "We close in five minutes.")  # "": with words of its own
    element.emit("stop-saying")  # takes back what is not said yet, the greeting too

Each ``say`` is answered by an element message ``personaplex-said``: ``number``, ``complete``, and
``reason`` where the engine would not take the words.
"""
