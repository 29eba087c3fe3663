"""A page to talk on, and the small server behind it. For development, on loopback only.

The page is plain HTML, CSS and modules in ``static/``. Its one library, ``livekit-client``, is in
``static/vendor/``, which set-up fills and the wheel carries, but the repository does not hold.
"""
