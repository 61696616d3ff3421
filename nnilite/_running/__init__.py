"""Experiments that run on this machine, seen from outside.

launch              start a manager, and wait until it is ready or says why not
manager_process     the process of a manager until it is ready; it can be started before its task is known
log_view            shows the log of a manager as it grows
managers            the running managers: connect to one, stop one, wait for its end
manager_client      a client of one manager's REST interface
offline             reads an experiment that is stopped, by serving its REST interface in this process
end_reasons         why an experiment or its trials failed, in sentences
final_delivery      waits until trackers and webhooks have got everything
reading             opens any experiment for reading, by its manager or its folder
removal             deletes an experiment
optuna_export       an experiment as a study of optuna, from what its manager says
manager_connection  the open connection of such a client, and its errors
timely_answer       reads an answer within a limit of time and size
"""
