//! [`date`]: the time of a response in the format of HTTP.

use std::time::SystemTime;

/// Returns a time in the format of HTTP (RFC 9110, section 5.6.7): `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(crate) fn date(time: SystemTime) -> String {
    const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"]; // 1 January 1970 was a Thursday
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut year, mut day) = (1970, days);
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while day >= lengths[month] {
        day -= lengths[month];
        month += 1;
    }
    let weekday = WEEKDAYS[(days % 7) as usize];
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{weekday}, {:02} {} {year} {hour:02}:{minute:02}:{second:02} GMT", day + 1, MONTHS[month])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn days_and_months_are_counted() {
        for (seconds, text) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_827_696, "Tue, 29 Feb 2000 12:34:56 GMT"),
            (4_107_542_399, "Sun, 28 Feb 2100 23:59:59 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
        ] {
            assert_eq!(date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }
}
