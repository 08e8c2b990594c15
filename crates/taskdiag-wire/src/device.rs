//! Device numbers in the format: as encoded by the kernel's `new_encode_dev()`, with 12 bits of the
//! major number and 20 of the minor one.

/// The major and the minor number of a device.
pub fn major_minor(dev: u32) -> (u32, u32) {
    (dev >> 8 & 0xfff, dev & 0xff | dev >> 12 & 0xf_ff00)
}

/// The device with these numbers. Bits that do not fit are left out.
pub fn device(major: u32, minor: u32) -> u32 {
    minor & 0xff | (major & 0xfff) << 8 | (minor & !0xff) << 12
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_are_packed_and_unpacked() {
        for numbers in [(0, 0), (8, 1), (136, 300), (0xfff, 0xf_ffff), (1, 0xff), (1, 0x100)] {
            assert_eq!(major_minor(device(numbers.0, numbers.1)), numbers);
        }
        assert_eq!(device(8, 1), 0x801);
        assert_eq!(major_minor(0x0010_0801), (8, 0x101));
    }
}
