//! Prepared images: how a script gets packages without getting a network.

use serde::Deserialize;

use crate::requirement::{Requirements, UnusableRequirement};

/// An image, and the packages that an operator put into it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PreparedImage {
    /// The image.
    pub image: String,
    /// What is in it, as `numpy` or `pandas==2.2.3`.
    pub packages: Vec<String>,
}

/// The images of an installation, in the order in which they are tried.
#[derive(Debug, Clone, Default)]
pub struct PreparedImages(Vec<(String, Requirements)>);

/// No image has what a script asks for; for the model.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotPrepared {
    /// There are no prepared images.
    #[error("packages are switched off here; use the standard library")]
    Off,
    /// None has all of it.
    #[error("no image here has all of {wanted}; together there are: {available}")]
    Missing {
        /// What is asked for.
        wanted: String,
        /// What there is, image by image.
        available: String,
    },
}

impl PreparedImages {
    /// Takes what an operator says of the images.
    ///
    /// # Errors
    /// When a package is no requirement.
    pub fn of(images: &[PreparedImage]) -> Result<Self, UnusableRequirement> {
        let read = |PreparedImage { image, packages }: &PreparedImage| {
            Ok((image.clone(), Requirements::parse(packages)?))
        };
        images.iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// The first image that has all that is asked for.
    ///
    /// # Errors
    /// When there is none.
    pub fn with(&self, wanted: &Requirements) -> Result<&str, NotPrepared> {
        if self.0.is_empty() {
            return Err(NotPrepared::Off);
        }
        let has_all = |(_, inside): &&(String, Requirements)| {
            wanted.iter().all(|one| inside.iter().any(|other| covers(other, one)))
        };
        match self.0.iter().find(has_all) {
            Some((image, _)) => Ok(image),
            None => Err(NotPrepared::Missing { wanted: wanted.to_string(), available: self.all() }),
        }
    }

    fn all(&self) -> String {
        let images = self.0.iter().map(|(_, inside)| format!("[{inside}]"));
        images.collect::<Vec<_>>().join(", ")
    }
}

/// Whether what is in an image is what is asked for: the same, or any version of it.
fn covers(inside: &str, wanted: &str) -> bool {
    inside == wanted || bare(inside) == wanted
}

/// A requirement without its versions.
fn bare(requirement: &str) -> &str {
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
        PreparedImages::of(&images).unwrap()
    }

    #[test]
    fn packages_choose_the_image_that_has_them() {
        let choose = |packages: &[&str]| {
            let images = images();
            images.with(&Requirements::parse(packages).unwrap()).map(ToOwned::to_owned)
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
            "no image here has all of beautifulsoup4, numpy; together there are: \
             [numpy==2.1, pandas==2.2.3], [beautifulsoup4, httpx[http2]==0.28]"
        );
    }

    #[test]
    fn without_prepared_images_there_are_no_packages() {
        let wanted = Requirements::parse(&["numpy"]).unwrap();
        assert_eq!(PreparedImages::default().with(&wanted), Err(NotPrepared::Off));
    }
}
