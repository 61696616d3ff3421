"""The REST interface: experiment API, trial callbacks, NNI-compatible API, live stream and the user interface's files.

    request -> Gate (Host, Origin, token) -> handler -> Backend (the manager) -> wire -> answer

The table `routes.ROUTES` lists all routes. Records become JSON by `nnilite.records.shapes`; `wire` has the rest of the
JSON. The only part of the manager that it knows is `nnilite._answers.backend.Backend`. A handler holds no state. The
manager refuses a request by raising an error of `nnilite.errors`.

application          puts the interface together and listens
options              the settings of the server, with the reasons for their defaults
port_binding         binds the port, or says clearly why it cannot
auth                 checks who may send which request
sign_in              links, sessions and tickets of people and their browsers
session_handlers     handlers that make and end these
page_name            the host name under which browsers open the page of one start of a server
server_connections   limits the open connections, and closes some when there are too many
trial_connections    the part of them that trials may have, and each single one
body_budget          limits the bytes of reports in memory, for one trial and for all
peers                finds out whether the user's own program is at the other end of a connection
forwarders           finds the program that has a socket, and recognizes those that forward ports
callback_proofs      the manager's half of the mutual proofs of keepers and managers
page_proofs          the same for pages that are signed in
route_definition     one row of the table of routes: address, handler, and what goes in and out
routes               the table of routes
bulk_routes          the part of the table for charts and large tables
nni_routes           the table of the routes that NNI had
handler              what all JSON handlers share: bounded bodies, security headers, errors as JSON
refusal              errors and their HTTP statuses
changeable_fields    what can be changed in a running experiment
experiment_handlers  handlers about the experiment itself
page_preference_handlers  what pages remember for their user: columns and named views
remark_handlers      handlers about what people have written about trials
trials               handlers about trials, their metrics, output and files
bulk_handlers        handlers about many trials at once
callbacks            handlers for keepers: they take events and send code
callback_socket      the callback for keepers on this machine, over a Unix socket
nni_api              handlers for the REST interface of NNI 3.0
export               all ended trials as one file
prometheus           the experiment in Prometheus' text format
file_digests         makes digests of the code and the keeper, each once
files                reads files, but none outside of their folder
events               reads a keeper's batch of events, trusting nothing in it
request_body         what the headers of a request say of its body, and which bodies are refused
stream               the live stream of changes
web                  the files of the user interface
wire                 JSON on the wire: its names, and its spelling of numbers
nni_wire             the JSON of NNI 3.0
schemas              JSON Schemas of requests and answers
openapi              the OpenAPI document, made from the table of routes
"""

from nnilite._answers.backend import Backend
from nnilite._answers.changes import Changes, Subscription
from nnilite._rest.application import RestApplication, assembled, listen, make_application, sign_in_address
from nnilite._rest.callback_socket import CallbackSocket
from nnilite._rest.handler import ManagerContext, ServerContext
from nnilite._rest.options import ServerOptions
from nnilite._rest.page_name import new_page_name
from nnilite._rest.server_connections import RestServer

__all__ = [
    "Backend",
    "CallbackSocket",
    "Changes",
    "ManagerContext",
    "RestApplication",
    "RestServer",
    "ServerContext",
    "ServerOptions",
    "Subscription",
    "assembled",
    "listen",
    "make_application",
    "new_page_name",
    "sign_in_address",
]
