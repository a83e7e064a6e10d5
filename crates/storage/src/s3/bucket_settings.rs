//! The settings of a bucket: its region, its address and the keys that sign requests.

use super::sigv4::SigningKeys;
use crate::{StorageCredentials, StorageEndpoints, StorageProblem, StorageProblemKind};

/// Servers with the protocol of S3 accept it if they have no regions.
const DEFAULT_REGION: &str = "us-east-1";

fn credentials_problem(text: String) -> StorageProblem {
    StorageProblem::new(StorageProblemKind::Credentials, text)
}

pub(super) fn region(
    label: &str,
    credentials: &StorageCredentials,
    endpoints: &StorageEndpoints,
) -> Result<String, StorageProblem> {
    let default = endpoints.endpoint.is_some().then_some(DEFAULT_REGION);
    let region = credentials.aws_region.as_deref().or(default);
    let is_region = |text: &&str| {
        let is_plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !text.is_empty() && text.len() <= 40 && text.bytes().all(is_plain)
    };
    let missing = || format!("{label}: AWS_REGION is not set to a region such as eu-west-1");
    let region = region
        .filter(is_region)
        .ok_or_else(|| credentials_problem(missing()))?;
    Ok(region.to_owned())
}

/// Returns the URL of a bucket at AWS.
pub(super) fn default_url(bucket: &str, is_directory_bucket: bool, region: &str) -> String {
    let domain = match region.starts_with("cn-") {
        true => "amazonaws.com.cn",
        false => "amazonaws.com",
    };
    if is_directory_bucket {
        // BASE--ZONE--x-s3
        let zone = bucket.rsplit("--").nth(1).unwrap_or_default();
        return format!("https://{bucket}.s3express-{zone}.{region}.{domain}");
    }
    match bucket.contains('.') {
        true => format!("https://s3.{region}.{domain}"),
        false => format!("https://{bucket}.s3.{region}.{domain}"),
    }
}

pub(super) fn signing_keys(
    label: &str,
    credentials: &StorageCredentials,
) -> Result<SigningKeys, StorageProblem> {
    let (Some(id), Some(secret)) = (
        credentials.aws_access_key_id.clone(),
        credentials.aws_secret_access_key.clone(),
    ) else {
        return Err(credentials_problem(format!(
            "{label}: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set"
        )));
    };
    let token = credentials.aws_session_token.clone();
    let is_plain = |text: &String| text.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_plain(&id) || token.as_ref().is_some_and(|token| !is_plain(token)) {
        return Err(credentials_problem(format!(
            "{label}: AWS_ACCESS_KEY_ID or AWS_SESSION_TOKEN contains characters that keys do not have"
        )));
    }
    Ok(SigningKeys {
        access_key_id: id,
        secret_access_key: secret,
        session_token: token.map(|token| ("x-amz-security-token", token)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_have_hosts_of_their_own_at_aws() {
        for (bucket, is_express, region, expected) in [
            (
                "b",
                false,
                "eu-west-1",
                "https://b.s3.eu-west-1.amazonaws.com",
            ),
            (
                "b.c",
                false,
                "eu-west-1",
                "https://s3.eu-west-1.amazonaws.com",
            ),
            (
                "b",
                false,
                "cn-north-1",
                "https://b.s3.cn-north-1.amazonaws.com.cn",
            ),
            (
                "b--use1-az4--x-s3",
                true,
                "us-east-1",
                "https://b--use1-az4--x-s3.s3express-use1-az4.us-east-1.amazonaws.com",
            ),
        ] {
            assert_eq!(default_url(bucket, is_express, region), expected);
        }
    }
}
