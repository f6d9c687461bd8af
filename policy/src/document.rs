//! stub
use crate::file::Files;
use crate::file::runs::RunPolicy;
use crate::policy::ApprovalPolicy;
use crate::reader::Reader;
use crate::tree::Node;
/// x
#[derive(Debug)]
pub struct Document;
pub(crate) fn read_entry(
    _: &mut Reader<'_>,
    _: &Node,
    _: &ApprovalPolicy,
    _: &mut RunPolicy,
    _: &dyn Files,
    _: &mut sha2::Sha256,
) {
}
