//! The service `Auth`.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use prost::Message;
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};

use super::refusal::{NO_PASSWORD_USER, Refusal};
use super::state::{Change, State};
use super::{Auth, Caller, Credentials, Settled, password, settle};
use crate::errors::{STOPPED, TOO_LARGE, refuse};
use crate::proto::etcdserverpb as pb;
use crate::server::PeerCommonName;

/// Who can tell the heads of answers.
pub trait Headers: Send + Sync + 'static {
    /// The head of an answer as of now.
    fn header(&self) -> pb::ResponseHeader;
}

impl<F: Fn() -> pb::ResponseHeader + Send + Sync + 'static> Headers for F {
    fn header(&self) -> pb::ResponseHeader {
        self()
    }
}

/// The service.
pub struct AuthService<H> {
    auth: Auth,
    headers: H,
    /// Passwords that are hashed at a time: each takes a processor.
    hashing: Arc<Semaphore>,
}

impl<H> fmt::Debug for AuthService<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthService").field("auth", &self.auth).finish_non_exhaustive()
    }
}

type Answer<T> = Result<Response<T>, Status>;

/// What a request says about who sends it.
fn credentials<T>(request: &Request<T>) -> Credentials {
    let name = request.extensions().get::<PeerCommonName>();
    Credentials::new(request.metadata(), name.map(|name| name.0.as_str()))
}

/// Runs what waits for the disk or hashes. It goes on where the client has gone.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Status> + Send + 'static,
) -> Result<T, Status> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|_| Err(refuse(STOPPED)))
}

impl<H: Headers> AuthService<H> {
    /// The service over these rules.
    pub fn new(auth: &Auth, headers: H) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self { auth: auth.clone(), headers, hashing: Arc::new(Semaphore::new(processors)) }
    }

    #[allow(clippy::unnecessary_wraps, reason = "as answers have it")]
    fn header(&self) -> Option<pb::ResponseHeader> {
        Some(self.headers.header())
    }

    fn check_size(&self, request: &impl Message) -> Result<(), Status> {
        let is_larger = request.encoded_len() > self.auth.shared.max_request_bytes;
        if is_larger { Err(refuse(TOO_LARGE)) } else { Ok(()) }
    }

    /// Who asks, for what only looks.
    fn caller<T>(&self, request: &Request<T>) -> Result<Caller, Status> {
        Ok(self.auth.caller_with(&credentials(request))?)
    }

    /// Changes something that is about a user or role.
    async fn change<T: Message + 'static>(
        &self,
        request: Request<T>,
        edit: impl FnOnce(&mut State, &T) -> Result<Change, Refusal> + Send + 'static,
    ) -> Result<(), Status> {
        self.change_user(request, |_| String::new(), edit).await
    }

    /// Changes something that may make a user's tokens void.
    async fn change_user<T: Message + 'static>(
        &self,
        request: Request<T>,
        user: impl FnOnce(&T) -> String,
        edit: impl FnOnce(&mut State, &T) -> Result<Change, Refusal> + Send + 'static,
    ) -> Result<(), Status> {
        self.check_size(request.get_ref())?;
        let (auth, credentials) = (self.auth.clone(), credentials(&request));
        let request = request.into_inner();
        let user = user(&request);
        let change = move || auth.change(&credentials, &user, |state| edit(state, &request));
        let settled: Settled = blocking(change).await?;
        settle(settled).await;
        Ok(())
    }

    /// The hash of a password, for a caller who may set one.
    async fn hash(&self, caller: Caller, password: String) -> Result<Vec<u8>, Status> {
        caller.must_be_admin()?;
        // It must not keep a change waiting.
        drop(caller);
        let cost = self.auth.shared.cost;
        let place = Arc::clone(&self.hashing).acquire_owned().await;
        blocking(move || {
            let _place = place;
            Ok(password::hash(&password, cost)?)
        })
        .await
    }
}

#[tonic::async_trait]
impl<H: Headers> pb::auth_server::Auth for AuthService<H> {
    async fn auth_enable(
        &self,
        request: Request<pb::AuthEnableRequest>,
    ) -> Answer<pb::AuthEnableResponse> {
        self.change(request, |state, _| state.enable()).await?;
        Ok(Response::new(pb::AuthEnableResponse { header: self.header() }))
    }

    async fn auth_disable(
        &self,
        request: Request<pb::AuthDisableRequest>,
    ) -> Answer<pb::AuthDisableResponse> {
        self.change(request, |state, _| state.disable()).await?;
        Ok(Response::new(pb::AuthDisableResponse { header: self.header() }))
    }

    /// Anyone may ask, as of etcd 3.7: before, only `root`.
    async fn auth_status(
        &self,
        request: Request<pb::AuthStatusRequest>,
    ) -> Answer<pb::AuthStatusResponse> {
        self.caller(&request)?;
        let state = &self.auth.rules().state;
        let (enabled, auth_revision) = (state.enabled, state.revision);
        let header = self.header();
        Ok(Response::new(pb::AuthStatusResponse { header, enabled, auth_revision }))
    }

    async fn authenticate(
        &self,
        request: Request<pb::AuthenticateRequest>,
    ) -> Answer<pb::AuthenticateResponse> {
        self.check_size(request.get_ref())?;
        let (auth, request) = (self.auth.clone(), request.into_inner());
        let place = Arc::clone(&self.hashing).acquire_owned().await;
        let token = blocking(move || {
            let _place = place;
            Ok(auth.authenticate(&request.name, &request.password)?)
        })
        .await?;
        Ok(Response::new(pb::AuthenticateResponse { header: self.header(), token }))
    }

    /// A hash that the request has is not looked at.
    async fn user_add(
        &self,
        mut request: Request<pb::AuthUserAddRequest>,
    ) -> Answer<pb::AuthUserAddResponse> {
        self.check_size(request.get_ref())?;
        let caller = self.caller(&request)?;
        let wanted = request.get_mut();
        let password = std::mem::take(&mut wanted.password);
        let hash = if wanted.options.is_some_and(|options| options.no_password) {
            drop(caller);
            None
        } else {
            Some(self.hash(caller, password).await?)
        };
        self.change(request, |state, wanted| state.add_user(&wanted.name, hash)).await?;
        Ok(Response::new(pb::AuthUserAddResponse { header: self.header() }))
    }

    async fn user_get(
        &self,
        request: Request<pb::AuthUserGetRequest>,
    ) -> Answer<pb::AuthUserGetResponse> {
        let name = &request.get_ref().name;
        self.caller(&request)?.may_get_user(name)?;
        let roles = self.auth.rules().state.user_roles(name)?;
        Ok(Response::new(pb::AuthUserGetResponse { header: self.header(), roles }))
    }

    async fn user_list(
        &self,
        request: Request<pb::AuthUserListRequest>,
    ) -> Answer<pb::AuthUserListResponse> {
        self.caller(&request)?.must_be_admin()?;
        let users = self.auth.rules().state.users.keys().cloned().collect();
        Ok(Response::new(pb::AuthUserListResponse { header: self.header(), users }))
    }

    async fn user_delete(
        &self,
        request: Request<pb::AuthUserDeleteRequest>,
    ) -> Answer<pb::AuthUserDeleteResponse> {
        let name = |wanted: &pb::AuthUserDeleteRequest| wanted.name.clone();
        self.change_user(request, name, |state, wanted| state.delete_user(&wanted.name)).await?;
        Ok(Response::new(pb::AuthUserDeleteResponse { header: self.header() }))
    }

    /// Without a password it is the hash that the request has, in base64: none at all where there is none.
    async fn user_change_password(
        &self,
        mut request: Request<pb::AuthUserChangePasswordRequest>,
    ) -> Answer<pb::AuthUserChangePasswordResponse> {
        self.check_size(request.get_ref())?;
        let caller = self.caller(&request)?;
        let password = std::mem::take(&mut request.get_mut().password);
        let hash = if password.is_empty() {
            drop(caller);
            STANDARD.decode(&request.get_ref().hashed_password).map_err(|_| NO_PASSWORD_USER)
        } else {
            Ok(self.hash(caller, password).await?)
        };
        let name = |wanted: &pb::AuthUserChangePasswordRequest| wanted.name.clone();
        let edit = |state: &mut State, wanted: &pb::AuthUserChangePasswordRequest| {
            state.change_password(&wanted.name, || hash)
        };
        self.change_user(request, name, edit).await?;
        Ok(Response::new(pb::AuthUserChangePasswordResponse { header: self.header() }))
    }

    async fn user_grant_role(
        &self,
        request: Request<pb::AuthUserGrantRoleRequest>,
    ) -> Answer<pb::AuthUserGrantRoleResponse> {
        self.change(request, |state, wanted| state.grant_role(&wanted.user, &wanted.role)).await?;
        Ok(Response::new(pb::AuthUserGrantRoleResponse { header: self.header() }))
    }

    async fn user_revoke_role(
        &self,
        request: Request<pb::AuthUserRevokeRoleRequest>,
    ) -> Answer<pb::AuthUserRevokeRoleResponse> {
        self.change(request, |state, wanted| state.revoke_role(&wanted.name, &wanted.role)).await?;
        Ok(Response::new(pb::AuthUserRevokeRoleResponse { header: self.header() }))
    }

    async fn role_add(
        &self,
        request: Request<pb::AuthRoleAddRequest>,
    ) -> Answer<pb::AuthRoleAddResponse> {
        self.change(request, |state, wanted| state.add_role(&wanted.name)).await?;
        Ok(Response::new(pb::AuthRoleAddResponse { header: self.header() }))
    }

    async fn role_get(
        &self,
        request: Request<pb::AuthRoleGetRequest>,
    ) -> Answer<pb::AuthRoleGetResponse> {
        let role = &request.get_ref().role;
        self.caller(&request)?.may_get_role(role)?;
        let perm = self.auth.rules().state.role_permissions(role)?;
        Ok(Response::new(pb::AuthRoleGetResponse { header: self.header(), perm }))
    }

    async fn role_list(
        &self,
        request: Request<pb::AuthRoleListRequest>,
    ) -> Answer<pb::AuthRoleListResponse> {
        self.caller(&request)?.must_be_admin()?;
        let roles = self.auth.rules().state.roles.keys().cloned().collect();
        Ok(Response::new(pb::AuthRoleListResponse { header: self.header(), roles }))
    }

    async fn role_delete(
        &self,
        request: Request<pb::AuthRoleDeleteRequest>,
    ) -> Answer<pb::AuthRoleDeleteResponse> {
        self.change(request, |state, wanted| state.delete_role(&wanted.role)).await?;
        Ok(Response::new(pb::AuthRoleDeleteResponse { header: self.header() }))
    }

    async fn role_grant_permission(
        &self,
        request: Request<pb::AuthRoleGrantPermissionRequest>,
    ) -> Answer<pb::AuthRoleGrantPermissionResponse> {
        let edit = |state: &mut State, wanted: &pb::AuthRoleGrantPermissionRequest| {
            state.grant_permission(&wanted.name, wanted.perm.as_ref())
        };
        self.change(request, edit).await?;
        Ok(Response::new(pb::AuthRoleGrantPermissionResponse { header: self.header() }))
    }

    async fn role_revoke_permission(
        &self,
        request: Request<pb::AuthRoleRevokePermissionRequest>,
    ) -> Answer<pb::AuthRoleRevokePermissionResponse> {
        let edit = |state: &mut State, wanted: &pb::AuthRoleRevokePermissionRequest| {
            state.revoke_permission(&wanted.role, &wanted.key, &wanted.range_end)
        };
        self.change(request, edit).await?;
        Ok(Response::new(pb::AuthRoleRevokePermissionResponse { header: self.header() }))
    }
}
