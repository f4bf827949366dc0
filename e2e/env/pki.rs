//! A certificate authority of a plane's own, and what it signs.

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};

/// A certificate and its key, both PEM.
#[derive(Clone)]
pub(crate) struct Identity {
    /// The certificate.
    pub(crate) cert: String,
    /// Its private key.
    pub(crate) key: String,
}

/// One CA, as every plane has.
pub(crate) struct Pki {
    issuer: CertifiedIssuer<'static, KeyPair>,
    service_account: KeyPair,
}

/// When a certificate is valid, as (year, month, day) pairs; planes that a test keeps for minutes
/// need no care for it, tests of expiry do.
pub(crate) type Validity = ((i32, u8, u8), (i32, u8, u8));

const LONG: Validity = ((2020, 1, 1), (2099, 1, 1));

impl Pki {
    /// A new CA called `name`.
    pub(crate) fn new(name: &str) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, format!("{name} lab CA"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::CrlSign,
        ];
        set_validity(&mut params, LONG);
        let key = common::chance::secret::key_pair().context("failed to make a CA key")?;
        let issuer =
            CertifiedIssuer::self_signed(params, key).context("failed to sign a CA certificate")?;
        let service_account = common::chance::secret::key_pair()
            .context("failed to make a ServiceAccount signing key")?;
        Ok(Self {
            issuer,
            service_account,
        })
    }

    /// The CA certificate.
    pub(crate) fn ca_pem(&self) -> String {
        self.issuer.pem()
    }

    /// The CA certificate, DER.
    pub(crate) fn ca_der(&self) -> Vec<u8> {
        self.issuer.der().to_vec()
    }

    /// The CA's key, for the controller that signs requests.
    pub(crate) fn ca_key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// The key pair for ServiceAccount tokens: (private, public).
    pub(crate) fn service_account(&self) -> (String, String) {
        (
            self.service_account.serialize_pem(),
            self.service_account.public_key_pem(),
        )
    }

    /// A server certificate for `names` (DNS names and addresses).
    pub(crate) fn server(&self, names: &[String]) -> Result<Identity> {
        self.server_valid(names, LONG)
    }

    /// A server certificate with a validity of the test's choice.
    pub(crate) fn server_valid(&self, names: &[String], validity: Validity) -> Result<Identity> {
        let mut params = CertificateParams::new(names).context("bad name for a server")?;
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, "lab server");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params, validity)
    }

    /// A client certificate for a user in groups.
    pub(crate) fn client(&self, user: &str, groups: &[&str]) -> Result<Identity> {
        self.client_valid(user, groups, LONG)
    }

    /// A client certificate with a validity of the test's choice.
    pub(crate) fn client_valid(
        &self,
        user: &str,
        groups: &[&str],
        validity: Validity,
    ) -> Result<Identity> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, user);
        for (index, group) in groups.iter().enumerate() {
            // rcgen keeps one value for each type it knows, so later ones go in by their OID.
            let kind = if index == 0 {
                DnType::OrganizationName
            } else {
                DnType::CustomDnType(vec![2, 5, 4, 10])
            };
            params.distinguished_name.push(kind, *group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params, validity)
    }

    fn sign(&self, mut params: CertificateParams, validity: Validity) -> Result<Identity> {
        params.is_ca = IsCa::NoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, validity);
        let key = common::chance::secret::key_pair().context("failed to make a key")?;
        let cert = params
            .signed_by(&key, &self.issuer)
            .context("failed to sign a certificate")?;
        Ok(Identity {
            cert: cert.pem(),
            key: key.serialize_pem(),
        })
    }
}

fn set_validity(params: &mut CertificateParams, (from, to): Validity) {
    params.not_before = rcgen::date_time_ymd(from.0, from.1, from.2);
    params.not_after = rcgen::date_time_ymd(to.0, to.1, to.2);
}
