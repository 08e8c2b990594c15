/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The division that splits the CPU time of a task into user and system time. It
 * is a file of its own because a test compiles it for the host, too.
 */
#ifndef TASKDIAG_MULDIV_H
#define TASKDIAG_MULDIV_H

/* One bit of the long division of mul_div(). */
STEP(divide_bit, i)
{
	u64 hi = st.div_high, top = hi, less, bit;

	hi = (hi << 1) | (st.div_low >> 63);
	st.div_low <<= 1;
	/* The next bit of the quotient is 1 if a bit was shifted out of hi, or if hi is not less than the divisor. Bit 63 of
	 * `less` is the borrow of hi - divisor. There is no comparison, since that is a jump, and the verifier follows both ways
	 * of each. */
	less = (~hi & st.divisor) | ((~hi | st.divisor) & (hi - st.divisor));
	top |= ~less;
	barrier_var(top);
	bit = top >> 63;
	barrier_var(bit);
	st.div_high = hi - (st.divisor & -bit);
	st.quotient = (st.quotient << 1) | bit;
	return 0;
}

/* Returns floor(a * b / c) for a <= c, exactly as the kernel's mul_u64_u64_div_u64() does. */
__noinline u64 mul_div(u64 a, u64 b, u64 c)
{
	u64 ah = a >> 32, al = (u32)a, bh = b >> 32, bl = (u32)b;
	u64 lo, hi, mid;

	if (!c)
		return 0;
	if (!ah && !bh)
		return al * bl / c;
	lo = al * bl;
	mid = ah * bl + (lo >> 32);
	hi = ah * bh + (mid >> 32);
	mid = (u32)mid + al * bh;
	hi += mid >> 32;
	lo = (mid << 32) | (u32)lo;
	if (!hi)
		return lo / c;
	/* hi < c because a <= c. So this is a long division, one bit at a time. */
	st.div_high = hi;
	st.div_low = lo;
	st.divisor = c;
	st.quotient = 0;
	LOOP(64, divide_bit);
	return st.quotient;
}

#endif
