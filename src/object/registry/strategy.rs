//! What is particular to a kind: the hooks that a Kubernetes API server calls the strategy of a resource.

use serde_json::Value;
use uuid::Uuid;

use crate::object::meta;
use crate::object::names::NameRule;
use crate::object::status::Cause;

/// What the rules of one kind are. Every hook has a default, so that a strategy says what is particular only.
///
/// The order of a write: defaults, [`prepare_for_create`](Self::prepare_for_create) or
/// [`prepare_for_update`](Self::prepare_for_update), validation, [`canonicalize`](Self::canonicalize), and for updates
/// the generation, which counts what is different then; a new object has generation 1 from the beginning. All may be
/// called several times for one write, when others write at the same time. What comes after a write is called once, and
/// not for dry runs.
///
/// ```
/// use annals::object::{Cause, GenerationRule, Strategy};
/// use serde_json::Value;
///
/// /// As deployments: a status of their own, and annotations count.
/// struct Deployments;
///
/// impl Strategy for Deployments {
///     fn generation(&self) -> GenerationRule {
///         GenerationRule::SpecAndAnnotations
///     }
///     fn has_status(&self) -> bool {
///         true
///     }
///     fn apply_defaults(&self, object: &mut Value) {
///         if object["spec"]["replicas"].is_null() && object["spec"].is_object() {
///             object["spec"]["replicas"] = 1.into();
///         }
///     }
///     fn validate(&self, object: &Value) -> Vec<Cause> {
///         match object["spec"]["replicas"].as_i64() {
///             Some(replicas) if replicas < 0 => {
///                 vec![Cause::invalid("spec.replicas", &replicas.into(), "must be greater than or equal to 0")]
///             }
///             _ => vec![],
///         }
///     }
/// }
/// ```
pub trait Strategy: Send + Sync + 'static {
    /// What changes `metadata.generation`. Default: everything but metadata and status.
    fn generation(&self) -> GenerationRule {
        GenerationRule::AllButMetadata
    }

    /// Whether `status` is a subresource: then only [`update_status`](super::Objects::update_status) and patches of the
    /// subresource write it, and those write nothing else. Default: no.
    fn has_status(&self) -> bool {
        false
    }

    /// Which names objects may have. Default: DNS subdomains.
    fn name_rule(&self) -> NameRule {
        NameRule::DnsSubdomain
    }

    /// A name that begins with `base`, for objects with `generateName`. Default: five random characters behind it, 63
    /// in all at most.
    fn generate_name(&self, base: &str) -> String {
        random_name(base)
    }

    /// Fills in what clients may leave out. Default: nothing.
    fn apply_defaults(&self, object: &mut Value) {
        let _ = object;
    }

    /// Changes a new object before it is validated: takes away what clients may not set. Default: nothing. (The status is
    /// taken away before, where it is a subresource.)
    fn prepare_for_create(&self, object: &mut Value) {
        let _ = object;
    }

    /// Changes an object before it is validated, in the light of what is there. Default: nothing. (The status that is there is
    /// kept before, where it is a subresource.)
    fn prepare_for_update(&self, object: &mut Value, old: &Value) {
        let _ = (object, old);
    }

    /// The same for a write of the status, after everything else has been kept as it is. Default: nothing.
    fn prepare_for_status_update(&self, object: &mut Value, old: &Value) {
        let _ = (object, old);
    }

    /// What is wrong with an object, of what only its kind knows; asked for new objects and for updates. Default:
    /// nothing.
    fn validate(&self, object: &Value) -> Vec<Cause> {
        let _ = object;
        Vec::new()
    }

    /// What is wrong with a change. Default: nothing.
    fn validate_update(&self, object: &Value, old: &Value) -> Vec<Cause> {
        let _ = (object, old);
        Vec::new()
    }

    /// What is wrong with a change of the status. Default: nothing.
    fn validate_status_update(&self, object: &Value, old: &Value) -> Vec<Cause> {
        let _ = (object, old);
        Vec::new()
    }

    /// Why an object may not be deleted. Asked by every deletion, of what is there; not when the last finalizer of what is
    /// being deleted is taken away. Default: nothing.
    fn validate_delete(&self, object: &Value) -> Vec<Cause> {
        let _ = object;
        Vec::new()
    }

    /// Brings a valid object into the one form in which it is stored, as by sorting lists without order. Default: nothing.
    fn canonicalize(&self, object: &mut Value) {
        let _ = object;
    }

    /// Called when an object has been created, also by an update or an apply. Default: nothing.
    ///
    /// This and the next two are called by the thread that has written, before it is answered: slow ones make writes slow, and
    /// they cannot fail. They are no part of the write: a process that ends in between never calls them, and others may
    /// have changed the object by then. What must not be missed is told by a [`watch`](super::Objects::watch).
    fn after_create(&self, object: &Value) {
        let _ = object;
    }

    /// Called when an object has been updated, also where nothing was to be written; not where its deletion has only been
    /// marked. Default: nothing.
    fn after_update(&self, object: &Value) {
        let _ = object;
    }

    /// Called when an object is gone, also by an update that has taken its last finalizer away; not where its time to live has
    /// ended. Default: nothing.
    fn after_delete(&self, object: &Value) {
        let _ = object;
    }

    /// Changes every object that is answered, listed or told by a watch, on its way to the client: what is added here
    /// is not stored, and has to be taken away in [`prepare_for_update`](Self::prepare_for_update) when it comes back.
    /// Selectors do not see it, nor does any other hook. Default: nothing.
    fn decorate(&self, object: &mut Value) {
        let _ = object;
    }

    /// Whether an update creates an object that is not there. Default: no.
    fn allow_create_on_update(&self) -> bool {
        false
    }

    /// Whether an update without a resource version overwrites whatever is there. Default: yes.
    fn allow_unconditional_update(&self) -> bool {
        true
    }

    /// Seconds for which an object lives from this write on; `None` for ever or, with an update, as long as before. Then it
    /// is gone, whatever finalizers it has. Default: `None`.
    fn ttl(&self, object: &Value, old: Option<&Value>) -> Option<u64> {
        let _ = (object, old);
        None
    }

    /// Seconds that an object is given to end by itself when somebody wants it deleted. It is marked, and stays for all to
    /// see until somebody deletes it with a grace of 0: that does not happen by itself. `None` where it is deleted at
    /// once. `asked` is what the client wants. Default: `None`.
    fn grace_period(&self, object: &Value, asked: Option<i64>) -> Option<i64> {
        let _ = (object, asked);
        None
    }

    /// What becomes of dependents where the client does not say. Default: [`GarbageCollection::Background`].
    fn garbage_collection(&self) -> GarbageCollection {
        GarbageCollection::Background
    }

    /// Whether a deletion answers with the object; otherwise with a `Status` of success. Default: no.
    fn returns_deleted_object(&self) -> bool {
        false
    }

    /// The fields that field selectors may name besides `metadata.name` and `metadata.namespace`, as
    /// `spec.nodeName`. Default: none.
    fn selectable_fields(&self) -> Vec<String> {
        Vec::new()
    }
}

/// Which changes count in `metadata.generation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GenerationRule {
    /// None: objects have no generation.
    Never,
    /// Those of `spec`, as most kinds of Kubernetes have it.
    Spec,
    /// Those of `spec` and of annotations, as deployments have it.
    SpecAndAnnotations,
    /// Those of all fields but `metadata`, and but `status` where that is a subresource: custom resources.
    AllButMetadata,
}

impl GenerationRule {
    /// Whether the rule counts the change from `old` to `object`.
    pub fn is_changed(self, object: &Value, old: &Value) -> bool {
        let differs = |field: &str| !is_equal(&object[field], &old[field]);
        match self {
            Self::Never => false,
            Self::Spec => differs("spec"),
            Self::SpecAndAnnotations => {
                let annotations = |object| meta::field(object, "annotations");
                differs("spec") || !is_equal(annotations(object), annotations(old))
            }
            Self::AllButMetadata => {
                let content = |object: &'_ Value| {
                    let fields = object.as_object().into_iter().flatten();
                    fields.filter(|(name, _)| *name != "metadata").count()
                };
                let fields = object.as_object().into_iter().flatten();
                content(object) != content(old)
                    || fields
                        .filter(|(name, _)| *name != "metadata")
                        .any(|(name, value)| old.get(name) != Some(value))
            }
        }
    }
}

/// Whether two values mean the same: what is empty is as good as absent.
fn is_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            one.iter().all(|(name, value)| is_equal(value, other.get(name).unwrap_or(&Value::Null)))
                && other
                    .iter()
                    .all(|(name, value)| one.contains_key(name) || is_equal(value, &Value::Null))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| is_equal(one, other))
        }
        (Value::Null, Value::Object(fields)) | (Value::Object(fields), Value::Null) => {
            fields.is_empty()
        }
        (Value::Null, Value::Array(items)) | (Value::Array(items), Value::Null) => items.is_empty(),
        _ => one == other,
    }
}

/// What becomes of the objects that a deleted one owns, where the client does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GarbageCollection {
    /// Nobody collects garbage here: finalizers for it are never touched.
    Off,
    /// A collector of yours may delete them afterwards: the object is gone without asking it.
    Background,
    /// They are to stay: the object bears the finalizer `orphan` until a collector takes it away.
    Orphan,
    /// Objects of this kind own none: they never bear a finalizer for it.
    Unsupported,
}

/// A [`Strategy`] put together from the common rules. By default that of a custom resource without subresources.
///
/// ```
/// use annals::object::{GenerationRule, KindStrategy};
///
/// let pods = KindStrategy::new()
///     .generation(GenerationRule::Spec)
///     .with_status()
///     .grace_seconds(30)
///     .field("spec.nodeName")
///     .field("status.phase");
/// ```
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a rule of its own")]
pub struct KindStrategy {
    generation: GenerationRule,
    has_status: bool,
    names: NameRule,
    creates_on_update: bool,
    allows_unconditional_update: bool,
    ttl: Option<u64>,
    grace_seconds: Option<i64>,
    garbage_collection: GarbageCollection,
    returns_deleted_object: bool,
    fields: Vec<String>,
}

impl Default for KindStrategy {
    fn default() -> Self {
        Self {
            generation: GenerationRule::AllButMetadata,
            has_status: false,
            names: NameRule::DnsSubdomain,
            creates_on_update: false,
            allows_unconditional_update: true,
            ttl: None,
            grace_seconds: None,
            garbage_collection: GarbageCollection::Background,
            returns_deleted_object: false,
            fields: Vec::new(),
        }
    }
}

impl KindStrategy {
    /// The default.
    pub fn new() -> Self {
        Self::default()
    }

    /// With these changes counted in the generation.
    #[must_use]
    pub fn generation(mut self, rule: GenerationRule) -> Self {
        self.generation = rule;
        self
    }

    /// With `status` as a subresource.
    #[must_use]
    pub fn with_status(mut self) -> Self {
        self.has_status = true;
        self
    }

    /// With other names.
    #[must_use]
    pub fn names(mut self, rule: NameRule) -> Self {
        self.names = rule;
        self
    }

    /// With updates that create what is not there.
    #[must_use]
    pub fn create_on_update(mut self) -> Self {
        self.creates_on_update = true;
        self
    }

    /// With updates that have to say which version they change.
    #[must_use]
    pub fn no_unconditional_update(mut self) -> Self {
        self.allows_unconditional_update = false;
        self
    }

    /// With objects that live for so many seconds after each write. Then they are gone, whatever finalizers they have, and
    /// watches tell of it.
    #[must_use]
    pub fn ttl(mut self, seconds: u64) -> Self {
        self.ttl = Some(seconds);
        self
    }

    /// With objects that stay when somebody deletes them, marked with the time in so many seconds unless another is asked for,
    /// until somebody deletes them with a grace of 0: a controller of yours, see [`DeleteOptions`](super::DeleteOptions).
    #[must_use]
    pub fn grace_seconds(mut self, seconds: i64) -> Self {
        self.grace_seconds = Some(seconds);
        self
    }

    /// With this for dependents.
    #[must_use]
    pub fn garbage_collection(mut self, policy: GarbageCollection) -> Self {
        self.garbage_collection = policy;
        self
    }

    /// With deletions that answer with the object.
    #[must_use]
    pub fn return_deleted_object(mut self) -> Self {
        self.returns_deleted_object = true;
        self
    }

    /// With one more field that field selectors may name.
    #[must_use]
    pub fn field(mut self, path: impl Into<String>) -> Self {
        self.fields.push(path.into());
        self
    }
}

impl Strategy for KindStrategy {
    fn generation(&self) -> GenerationRule {
        self.generation
    }

    fn has_status(&self) -> bool {
        self.has_status
    }

    fn name_rule(&self) -> NameRule {
        self.names
    }

    fn allow_create_on_update(&self) -> bool {
        self.creates_on_update
    }

    fn allow_unconditional_update(&self) -> bool {
        self.allows_unconditional_update
    }

    fn ttl(&self, _: &Value, _: Option<&Value>) -> Option<u64> {
        self.ttl
    }

    fn grace_period(&self, _: &Value, asked: Option<i64>) -> Option<i64> {
        self.grace_seconds.map(|default| asked.unwrap_or(default))
    }

    fn garbage_collection(&self) -> GarbageCollection {
        self.garbage_collection
    }

    fn returns_deleted_object(&self) -> bool {
        self.returns_deleted_object
    }

    fn selectable_fields(&self) -> Vec<String> {
        self.fields.clone()
    }
}

/// The longest base of a generated name: names have 63 characters, 5 of which are random.
const BASE_MAX: usize = 58;

/// No vowels, so that no words come about.
const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

fn random_name(base: &str) -> String {
    let mut end = base.len().min(BASE_MAX);
    while !base.is_char_boundary(end) {
        end -= 1;
    }
    let mut name = base[..end].to_owned();
    // The last 62 bits of a random UUID are random.
    let mut random = Uuid::new_v4().as_u64_pair().1 & (u64::MAX >> 2);
    for _ in 0..5 {
        name.push(char::from(LETTERS[(random % 27) as usize]));
        random /= 27;
    }
    name
}
