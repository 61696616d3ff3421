"""Choose who calls Azure: a service principal, a managed identity, or the user of `az login`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nnilite.platform_http import hide
from nnilite_aml._config import AmlConfig

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential

CURE = (
    "run `az login` on this machine, or set tenantId, clientId and clientSecret of a service principal, or run the "
    "manager where it has a managed identity"
)
SERVICE_PRINCIPAL_CURE = "check tenantId, clientId and clientSecret, and that the secret has not expired"
_AUTHORITIES = {
    "AzureCloud": "https://login.microsoftonline.com",
    "AzureChinaCloud": "https://login.chinacloudapi.cn",
    "AzureUSGovernment": "https://login.microsoftonline.us",
}


def cure(config: AmlConfig) -> str:
    """Return the cure for a refused login."""
    return SERVICE_PRINCIPAL_CURE if config.client_secret is not None else CURE


def login(config: AmlConfig) -> TokenCredential:
    """Return a new credential, which has no token yet. Blocks, since it imports Azure's library."""
    from azure.identity import ClientSecretCredential, DefaultAzureCredential

    authority = _AUTHORITIES[config.cloud]
    if config.client_secret is not None:
        hide(config.client_secret)
        return ClientSecretCredential(
            str(config.tenant_id), str(config.client_id), str(config.client_secret), authority=authority
        )
    more: dict[str, Any] = {}
    if config.client_id:
        more["managed_identity_client_id"] = config.client_id
    if config.tenant_id:
        more["additionally_allowed_tenants"] = [config.tenant_id]
    # A manager has no user in front of it, so credentials that open a browser or ask for a code are left out.
    return DefaultAzureCredential(
        authority=authority,
        exclude_interactive_browser_credential=True,
        exclude_visual_studio_code_credential=True,
        exclude_shared_token_cache_credential=True,
        **more,
    )
