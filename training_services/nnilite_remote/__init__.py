"""The training service `remote`: runs trials on other machines over SSH.

_service           the service: places jobs on machines and asks how they are
_config            the section `platform: remote` of a config
_ssh_address       that section for an address such as `ssh://me@host`
_machine_choice    which machine gets a job, and why none does
_nodes             a trial on several machines, which are booked at once
_elastic_jobs      such a trial whose number of machines changes while it runs
_bookings          which job is on which machine
_machines          all machines together: opens them, sends what they have missed, asks for their jobs, closes them
_pending_commands  commands that unreachable machines have still to receive
_host_checkpoints  brings the checkpoints of a trial to the machine where it is tried again
_machine           one machine: connected, made ready, watched, and connected again
_machine_session   its connection (of nnilite.ssh), and the agent that serves on it
_machine_preload   the modules that it imports once for all trials
_attempts          the attempts of trials on it
_callback_route    how keepers on it reach the manager
_report_relay      passes reports that come through the agent on to the manager
_tunnel            the gate of the tunnel: lets only keepers through
_tunnel_request    the requests of keepers through it
_tunnel_upstream   passes their requests on to the manager
_agent_link        starts the agent on a machine, sends it requests, and moves files through it
_agent_answers     reads what agents say of their machines
_worker            the agent itself, which runs there
"""

from nnilite.ssh.known_hosts import HostKeyPolicy
from nnilite_remote._config import MachineConfig, RemoteConfig
from nnilite_remote._service import RemoteService
from nnilite_remote._ssh_address import service_at

__all__ = ["HostKeyPolicy", "MachineConfig", "RemoteConfig", "RemoteService", "service_at"]
