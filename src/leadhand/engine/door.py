from leadhand.app.door import *  # noqa
from leadhand.app.door import say, progress, host_info  # noqa
