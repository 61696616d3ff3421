"""A stand-in for Azure, as far as an Azure Machine Learning workspace needs it.

cloud         the way in: a proxy with certificates of its own, and the hosts behind it
login         Microsoft Entra: the tokens of a service principal
workspace     Resource Manager and run history: what the workspace keeps, and what it refuses
node          runs a job as processes of this machine, in the environment that Azure gives
contract      holds each request and each answer against the contract
azurite       the blobs of the workspace's storage account
bench         a manager's side, and the service on this workspace, or on a real one
"""
