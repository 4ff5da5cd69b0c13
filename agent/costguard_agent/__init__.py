"""The agent: reports the activity of GPUs, processes, disks and users of a rented machine to the watchdog.

It needs Python 3.9 and the standard library only, so that it runs on old images; it uses NVML through nvidia-ml-py if that is
installed. A job reports its progress with two lines, which never raise and never block:

    import costguard_agent
    costguard_agent.progress(step)
"""

from costguard_agent.hints import beat, phase, progress

__version__ = "0.1.0"
__all__ = ["beat", "phase", "progress"]
