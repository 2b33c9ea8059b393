use rustls::ServerConfig;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

/// A control plane that knows the bearers of tokens that begin with `good`, and counts questions.
struct Plane {
    reviews: Reviews,
    asked: Arc<AtomicUsize>,
}

impl Plane {
    async fn new() -> Self {
        let mut params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let ca_key = rcgen::KeyPair::generate().unwrap();
        let ca_pem = params.self_signed(&ca_key).unwrap().pem();
        let issuer = rcgen::Issuer::from_ca_cert_pem(&ca_pem, ca_key).unwrap();
        let names = vec!["127.0.0.1".to_owned()];
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(names).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap().pem();
        let key_pem = key.serialize_pem();
        let served = Identity::from_pem(certificate.as_bytes(), key_pem.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(served.chain, served.key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let authority = listener.local_addr().unwrap().to_string();
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let (acceptor, counted) = (acceptor.clone(), Arc::clone(&counted));
                tokio::spawn(async move {
                    let mut tls = acceptor.accept(tcp).await?;
                    counted.fetch_add(1, Ordering::SeqCst);
                    let mut request = Vec::new();
                    while !request.ends_with(b"}}") {
                        request.push(tls.read_u8().await?);
                    }
                    let is_known = String::from_utf8_lossy(&request).contains(r#""good"#);
                    let user = json!({"username": "jane", "groups": ["dev"]});
                    let status = json!({"authenticated": is_known, "user": user});
                    let body = json!({ "status": status }).to_string();
                    let length = body.len();
                    let head = format!("HTTP/1.1 201 Created\r\nContent-Length: {length}\r\n\r\n");
                    tls.write_all((head + &body).as_bytes()).await?;
                    tls.shutdown().await
                });
            }
        });
        let reviews = Reviews::new(&ControlPlaneAddress {
            authority: &authority,
            ca_pem: ca_pem.as_bytes(),
            certificate_pem: certificate.as_bytes(),
            key_pem: key_pem.as_bytes(),
        });
        let reviews = reviews.unwrap();
        Self { reviews, asked }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn made_up_tokens_do_not_push_out_good_ones() {
    let plane = Plane::new().await;
    for number in 0..KEPT_MAX {
        keep(&plane.reviews.strange, &format!("bad-{number}"), ());
    }
    for _ in 0..3 {
        let caller = plane.reviews.whose("good").await.unwrap();
        assert_eq!(caller.unwrap().name, "jane");
    }
    assert_eq!(plane.asked(), 1, "the answer is kept");
    assert_eq!(plane.reviews.whose("bad-1").await.unwrap(), None);
    assert_eq!(plane.asked(), 1, "so is a refusal");
    assert_eq!(plane.reviews.whose("worse").await.unwrap(), None);
    assert_eq!(plane.asked(), 2);
    let long = "x".repeat(TOKEN_BYTES_MAX + 1);
    assert_eq!(plane.reviews.whose(&long).await.unwrap(), None);
    assert_eq!(
        plane.asked(),
        2,
        "nobody is asked about what can be no token"
    );
}

#[test]
fn memory_is_bounded_and_forgets() {
    let memory = Mutex::default();
    for number in 0..KEPT_MAX + 10 {
        keep(&memory, &number.to_string(), number);
    }
    assert_eq!(memory.lock().unwrap().len(), KEPT_MAX);
    assert_eq!(kept(&memory, "1"), Some(1));
    let past = Instant::now().checked_sub(KEPT).unwrap();
    for (at, _) in memory.lock().unwrap().values_mut() {
        *at = past;
    }
    assert_eq!(kept(&memory, "1"), None);
    keep(&memory, "new", 0);
    assert_eq!(memory.lock().unwrap().len(), 1);
}
