//! Prepared images: packages for scripts that have no network.

use serde::Deserialize;

use crate::requirement::{InvalidRequirement, Requirements};

/// An image and the packages that it contains.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PreparedImage {
    /// The image.
    pub image: String,
    /// Its packages, such as `numpy` or `pandas==2.2.3`.
    pub packages: Vec<String>,
}

/// The prepared images of an installation, in order of preference.
#[derive(Debug, Clone, Default)]
pub struct PreparedImages(Vec<(String, Requirements)>);

/// An error when no image has the requested packages; for the model.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoPreparedImage {
    /// There are no prepared images.
    #[error("packages are disabled here; use the standard library")]
    Disabled,
    /// No image has all requested packages.
    #[error("no image has all of {requested}; available, by image: {available}")]
    Missing {
        /// The requested packages.
        requested: String,
        /// The packages of each image.
        available: String,
    },
}

impl PreparedImages {
    /// Parses the packages of the configured images.
    ///
    /// # Errors
    /// When a package is not a valid requirement.
    pub fn try_new(images: &[PreparedImage]) -> Result<Self, InvalidRequirement> {
        let parse = |PreparedImage { image, packages }: &PreparedImage| {
            Ok((image.clone(), Requirements::parse(packages)?))
        };
        images.iter().map(parse).collect::<Result<_, _>>().map(Self)
    }

    /// Returns the first image that has all requested packages.
    ///
    /// # Errors
    /// When no image has all of them.
    pub fn find(&self, requested: &Requirements) -> Result<&str, NoPreparedImage> {
        if self.0.is_empty() {
            return Err(NoPreparedImage::Disabled);
        }
        let has_all = |(_, available): &&(String, Requirements)| {
            requested.iter().all(|one| available.iter().any(|other| satisfies(other, one)))
        };
        match self.0.iter().find(has_all) {
            Some((image, _)) => Ok(image),
            None => Err(NoPreparedImage::Missing {
                requested: requested.to_string(),
                available: self.describe(),
            }),
        }
    }

    fn describe(&self) -> String {
        let images = self.0.iter().map(|(_, available)| format!("[{available}]"));
        images.collect::<Vec<_>>().join(", ")
    }
}

/// Returns whether an installed package satisfies a requirement: the same one, or any version of it.
fn satisfies(available: &str, requested: &str) -> bool {
    available == requested || package_name(available) == requested
}

/// Strips the versions from a requirement.
fn package_name(requirement: &str) -> &str {
    requirement.split(['<', '>', '=', '!', '~']).next().unwrap_or(requirement)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn images() -> PreparedImages {
        let image = |image: &str, packages: &[&str]| PreparedImage {
            image: image.to_owned(),
            packages: packages.iter().map(ToString::to_string).collect(),
        };
        let images = [
            image("science:1", &["numpy==2.1", "Pandas==2.2.3"]),
            image("web:1", &["httpx[http2]==0.28", "beautifulsoup4"]),
        ];
        PreparedImages::try_new(&images).unwrap()
    }

    #[test]
    fn packages_select_first_image_with_all_of_them() {
        let choose = |packages: &[&str]| {
            let images = images();
            images.find(&Requirements::parse(packages).unwrap()).map(ToOwned::to_owned)
        };
        assert_eq!(choose(&["numpy"]).unwrap(), "science:1");
        assert_eq!(choose(&["pandas == 2.2.3", "numpy"]).unwrap(), "science:1");
        assert_eq!(choose(&["Beautifulsoup4", "httpx[http2]"]).unwrap(), "web:1");
        // Another version, or packages of two images.
        choose(&["pandas==2.2"]).unwrap_err();
        choose(&["beautifulsoup4==4"]).unwrap_err();
        let missing = choose(&["numpy", "beautifulsoup4"]).unwrap_err();
        assert_eq!(
            missing.to_string(),
            "no image has all of beautifulsoup4, numpy; available, by image: \
             [numpy==2.1, pandas==2.2.3], [beautifulsoup4, httpx[http2]==0.28]"
        );
    }

    #[test]
    fn packages_are_disabled_without_prepared_images() {
        let requested = Requirements::parse(&["numpy"]).unwrap();
        assert_eq!(PreparedImages::default().find(&requested), Err(NoPreparedImage::Disabled));
    }
}
