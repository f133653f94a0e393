//! Instances as supervised processes of this machine.
