//! Parses the files that runtimes keep about a container. They also have its environment, arguments
//! and labels, which may be secrets. So each struct has only the members that are shown, and the
//! parser skips all others without keeping them. Nothing here does I/O.

use std::collections::HashMap;
use std::fmt;

use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// The longest name that is kept. Kubernetes and Docker have at most 255 bytes.
pub const LONGEST: usize = 1024;
/// The largest number of containers of one list.
pub const MOST: usize = 16_384;

/// Text of any bytes.
#[derive(Debug)]
pub struct Text(pub Vec<u8>);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Text, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Text;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text")
            }
            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Text, E> {
                match bytes.len() <= LONGEST {
                    true => Ok(Text(bytes.to_vec())),
                    false => Err(E::custom("the name is too long")),
                }
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Text, E> {
                self.visit_bytes(text.as_bytes())
            }
        }
        // Unlike strings, bytes need not be UTF-8.
        from.deserialize_bytes(Bytes)
    }
}

/// The names in a file. Empty text counts as none.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The program that made the container, where the file says it.
    pub manager: Option<Vec<u8>>,
    /// The name of the container.
    pub name: Option<Vec<u8>>,
    /// The name of the image.
    pub image: Option<Vec<u8>>,
    /// The name of the pod.
    pub pod_name: Option<Vec<u8>>,
    /// The namespace of the pod.
    pub pod_namespace: Option<Vec<u8>>,
}

fn first(texts: impl IntoIterator<Item = Option<Text>>) -> Option<Vec<u8>> {
    texts.into_iter().flatten().map(|t| t.0).find(|t| !t.is_empty())
}

#[derive(Deserialize)]
struct DockerFile {
    #[serde(rename = "Name")]
    name: Option<Text>,
    #[serde(rename = "Config")]
    config: Option<DockerConfig>,
}

#[derive(Deserialize)]
struct DockerConfig {
    #[serde(rename = "Image")]
    image: Option<Text>,
    #[serde(rename = "Labels")]
    labels: Option<DockerLabels>,
}

#[derive(Default, Deserialize)]
struct DockerLabels {
    #[serde(rename = "io.kubernetes.container.name")]
    name: Option<Text>,
    #[serde(rename = "io.kubernetes.pod.name")]
    pod_name: Option<Text>,
    #[serde(rename = "io.kubernetes.pod.namespace")]
    pod_namespace: Option<Text>,
}

/// `config.v2.json` of Docker. `None`: it is malformed.
pub fn docker(text: &[u8]) -> Option<Names> {
    let file: DockerFile = serde_json::from_slice(text).ok()?;
    let config = file.config;
    let image = config.as_ref().and_then(|c| c.image.as_ref()).map(|t| Text(t.0.clone()));
    let labels = config.and_then(|c| c.labels).unwrap_or_default();
    // Docker writes the names of containers with a slash before them.
    let own = file.name.map(|t| Text(t.0.strip_prefix(b"/").map(<[u8]>::to_vec).unwrap_or(t.0)));
    Some(Names {
        manager: None,
        name: first([labels.name, own]),
        image: first([image]),
        pod_name: first([labels.pod_name]),
        pod_namespace: first([labels.pod_namespace]),
    })
}

#[derive(Deserialize)]
struct Bundle {
    annotations: Option<Annotations>,
}

#[derive(Default, Deserialize)]
struct Annotations {
    #[serde(rename = "io.container.manager")]
    manager: Option<Text>,
    #[serde(rename = "io.kubernetes.cri.container-name")]
    cri_name: Option<Text>,
    #[serde(rename = "io.kubernetes.cri.image-name")]
    cri_image: Option<Text>,
    #[serde(rename = "io.kubernetes.cri.podsandbox.image-name")]
    cri_sandbox_image: Option<Text>,
    #[serde(rename = "io.kubernetes.cri.sandbox-name")]
    cri_pod_name: Option<Text>,
    #[serde(rename = "io.kubernetes.cri.sandbox-namespace")]
    cri_pod_namespace: Option<Text>,
    #[serde(rename = "nerdctl/name")]
    nerdctl_name: Option<Text>,
    #[serde(rename = "io.kubernetes.container.name")]
    crio_name: Option<Text>,
    #[serde(rename = "io.kubernetes.cri-o.ImageName")]
    crio_image: Option<Text>,
    #[serde(rename = "io.kubernetes.pod.name")]
    crio_pod_name: Option<Text>,
    #[serde(rename = "io.kubernetes.pod.namespace")]
    crio_pod_namespace: Option<Text>,
}

/// `config.json` of an OCI bundle, with the annotations of containerd, nerdctl or CRI-O. `None`: it
/// is malformed.
pub fn bundle(text: &[u8]) -> Option<Names> {
    let bundle: Bundle = serde_json::from_slice(text).ok()?;
    let a = bundle.annotations.unwrap_or_default();
    Some(Names {
        manager: first([a.manager]),
        name: first([a.cri_name, a.nerdctl_name, a.crio_name]),
        image: first([a.cri_image, a.crio_image, a.cri_sandbox_image]),
        pod_name: first([a.cri_pod_name, a.crio_pod_name]),
        pod_namespace: first([a.cri_pod_namespace, a.crio_pod_namespace]),
    })
}

#[derive(Deserialize)]
struct Stored {
    id: Text,
    names: Option<Vec<Text>>,
    metadata: Option<Metadata>,
}

/// JSON in a string of JSON.
struct Metadata(Option<Meta>);

#[derive(Deserialize)]
struct Meta {
    #[serde(rename = "image-name")]
    image: Option<Text>,
    name: Option<Text>,
}

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Metadata, D::Error> {
        struct Inner;
        impl Visitor<'_> for Inner {
            type Value = Metadata;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text")
            }
            fn visit_bytes<E: de::Error>(self, text: &[u8]) -> Result<Metadata, E> {
                Ok(Metadata(serde_json::from_slice(text).ok()))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Metadata, E> {
                self.visit_bytes(text.as_bytes())
            }
        }
        from.deserialize_bytes(Inner)
    }
}

/// Containers by their ids.
pub type Containers = HashMap<Vec<u8>, Names>;

/// `containers.json` of containers/storage, which Podman uses. `None`: it is malformed.
pub fn store(text: &[u8]) -> Option<Containers> {
    struct List;
    impl<'de> Visitor<'de> for List {
        type Value = Containers;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list of containers")
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Containers, A::Error> {
            let mut all = Containers::new();
            while let Some(one) = seq.next_element::<Stored>()? {
                if all.len() == MOST {
                    return Err(de::Error::custom("too many containers"));
                }
                let meta = one.metadata.and_then(|m| m.0);
                let (image, other) = meta.map_or((None, None), |m| (m.image, m.name));
                let own = one.names.and_then(|names| names.into_iter().next());
                let names =
                    Names { name: first([own, other]), image: first([image]), ..Names::default() };
                all.insert(one.id.0, names);
            }
            Ok(all)
        }
    }
    let mut from = serde_json::Deserializer::from_slice(text);
    let all = from.deserialize_seq(List).ok()?;
    from.end().ok()?;
    Some(all)
}

#[derive(Deserialize)]
struct Daemon {
    #[serde(rename = "data-root")]
    data_root: Option<Text>,
}

/// The directory of data in Docker's `daemon.json`.
pub fn data_root(text: &[u8]) -> Option<Vec<u8>> {
    serde_json::from_slice::<Daemon>(text).ok()?.data_root.map(|t| t.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(text: &[u8]) -> Option<Vec<u8>> {
        Some(text.to_vec())
    }

    #[test]
    fn names_may_be_any_bytes_and_files_may_be_odd() {
        let file =
            b"{\"Name\":\"/w\xff\\u001b[1m\",\"Config\":{\"Env\":[\"A=b\"],\"Labels\":null}}";
        let want = Names { name: some(b"w\xff\x1b[1m"), ..Names::default() };
        assert_eq!(docker(file), Some(want));
        for odd in [&b""[..], b"[]x", b"{\"Name\":7}", b"{\"Name\":\"a\"", b"nul", b"[[[["] {
            assert_eq!(docker(odd), None, "{}", odd.escape_ascii());
        }
        let deep = [b"{\"x\":".as_slice(), &b"[".repeat(100_000)].concat();
        assert_eq!(bundle(&deep), None);
        let long = format!("{{\"Name\":\"/{}\"}}", "x".repeat(LONGEST));
        assert_eq!(docker(long.as_bytes()), None);
        assert_eq!(bundle(b"{}"), Some(Names::default()));
    }

    #[test]
    fn a_store_has_names_and_images() {
        let text = br#"[{"id":"aa","names":["web","other"],"metadata":"{\"image-name\":\"img:1\",\"name\":\"x\"}","flags":{}},
            {"id":"bb","metadata":"not JSON"},{"id":"cc","names":null,"metadata":"{\"name\":\"n\"}"}]"#;
        let all = store(text).expect("it is well formed");
        let of = |id: &[u8]| (all[id].name.as_deref(), all[id].image.as_deref());
        assert_eq!(of(b"aa"), (Some(&b"web"[..]), Some(&b"img:1"[..])));
        assert_eq!(of(b"bb"), (None, None));
        assert_eq!(of(b"cc"), (Some(&b"n"[..]), None));
        let many = format!("[{}]", [r#"{"id":"x"}"#; 3].join(","));
        assert_eq!(store(many.as_bytes()).expect("it is well formed").len(), 1);
        assert!(store(b"[{\"id\":\"a\"}").is_none());
    }
}
