"""The agent: what runs on a rented machine and tells the watchdog what its GPUs, processes, disks and people do.

Python 3.9 and the standard library only, so that it runs on old images; NVML through nvidia-ml-py where that is installed.

A job tells its progress with two lines, which never raise and never wait:

    import costguard_agent
    costguard_agent.progress(step)
"""

from costguard_agent.hints import beat, phase, progress

__version__ = "0.1.0"
__all__ = ["beat", "phase", "progress"]
