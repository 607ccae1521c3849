* orsched: full-mip of the instance gate
* sha256 of the instance: 96950cec3b8a9f5d66c22651f0266042771e402d38446af172da6fa43969051b
* changed after it was built: variables and rows may be other than the program's
* minimise an objective that is not the program's; the column constant, fixed to 1, carries what is left out
* x_i_j: 0-1: request i is on client j
* p_i_j_k: 0-1: and is prefilled in stage k
* d_i_j_k: 0-1: and is on the client in decode stage k
* w_i_j_k: tokens of request i in decode stage k
* y_k_l: 0-1: prefill stage k is at level l
* r_k: rounds of decode stage k
* tsp_k, np_k: start and length of prefill stage k
* tsd_k, nd_k: start and length of decode stage k
* tmax: makespan
* rows e2_k .. e7_k, e8t_k: times, levels and caps, by Pang's equations (2) to (8)
* rows a_i_k, m_k: arrivals, memory
* rows s1_k, s2_k: symmetry: used stages come first
* rows e8_.. to e18_..: assignment and windows, by Pang's equations (8) to (18)
* rows w_i_j_k: tokens only where the request is on the client
* rows s3_i_j: symmetry: clients are numbered by their first request
* rows c1, c2: rounds and stages that all tokens need
* i counts requests, j clients, k stages or rounds, l levels, all from 0
NAME full-mip-gate
ROWS
 N objective
 G e2_0
 G e3_1
 G e4_0
 G e2_1
 G e3_2
 G e4_1
 G e2_2
 G e3_3
 G e4_2
 G e2_3
 G e3_4
 G e4_3
 G e2_4
 G e4_4
 E e5_0
 L e6_0
 L e7_0
 E e8t_0
 G e8_0_0
 L e12_0_0
 L e16_0_0
 G e8_1_0
 L e12_1_0
 L e16_1_0
 E e5_1
 L e6_1
 L e7_1
 E e8t_1
 G e8_0_1
 L e12_0_1
 L e16_0_1
 G e8_1_1
 L e12_1_1
 L e16_1_1
 E e5_2
 L e6_2
 L e7_2
 E e8t_2
 G e8_0_2
 L e12_0_2
 L e16_0_2
 G e8_1_2
 L e12_1_2
 L e16_1_2
 E e5_3
 L e6_3
 L e7_3
 E e8t_3
 G e8_0_3
 L e12_0_3
 L e16_0_3
 G e8_1_3
 L e12_1_3
 L e16_1_3
 E e5_4
 L e6_4
 L e7_4
 E e8t_4
 G e8_0_4
 L e12_0_4
 L e16_0_4
 G e8_1_4
 L e12_1_4
 L e16_1_4
 G e9_0_0_0
 G w_0_0_0
 G e9_0_0_1
 G w_0_0_1
 G e9_0_0_2
 G w_0_0_2
 G e9_0_0_3
 G w_0_0_3
 G e9_0_0_4
 G w_0_0_4
 L e14_0_0
 E e17_0_0
 G e9_0_1_0
 G w_0_1_0
 G e9_0_1_1
 G w_0_1_1
 G e9_0_1_2
 G w_0_1_2
 G e9_0_1_3
 G w_0_1_3
 G e9_0_1_4
 G w_0_1_4
 L e14_0_1
 E e17_0_1
 E e15_0
 E e18_0
 G e9_1_0_0
 G w_1_0_0
 G e9_1_0_1
 G w_1_0_1
 G e9_1_0_2
 G w_1_0_2
 G e9_1_0_3
 G w_1_0_3
 G e9_1_0_4
 G w_1_0_4
 L e14_1_0
 E e17_1_0
 G e9_1_1_0
 G w_1_1_0
 G e9_1_1_1
 G w_1_1_1
 G e9_1_1_2
 G w_1_1_2
 G e9_1_1_3
 G w_1_1_3
 G e9_1_1_4
 G w_1_1_4
 L e14_1_1
 E e17_1_1
 E e15_1
 E e18_1
 G e9_2_0_0
 G w_2_0_0
 G e9_2_0_1
 G w_2_0_1
 G e9_2_0_2
 G w_2_0_2
 G e9_2_0_3
 G w_2_0_3
 G e9_2_0_4
 G w_2_0_4
 L e14_2_0
 E e17_2_0
 G e9_2_1_0
 G w_2_1_0
 G e9_2_1_1
 G w_2_1_1
 G e9_2_1_2
 G w_2_1_2
 G e9_2_1_3
 G w_2_1_3
 G e9_2_1_4
 G w_2_1_4
 L e14_2_1
 E e17_2_1
 E e15_2
 E e18_2
 G e9_3_0_0
 G w_3_0_0
 G e9_3_0_1
 G w_3_0_1
 G e9_3_0_2
 G w_3_0_2
 G e9_3_0_3
 G w_3_0_3
 G e9_3_0_4
 G w_3_0_4
 L e14_3_0
 E e17_3_0
 G e9_3_1_0
 G w_3_1_0
 G e9_3_1_1
 G w_3_1_1
 G e9_3_1_2
 G w_3_1_2
 G e9_3_1_3
 G w_3_1_3
 G e9_3_1_4
 G w_3_1_4
 L e14_3_1
 E e17_3_1
 E e15_3
 E e18_3
 G e9_4_0_0
 G w_4_0_0
 G e9_4_0_1
 G w_4_0_1
 G e9_4_0_2
 G w_4_0_2
 G e9_4_0_3
 G w_4_0_3
 G e9_4_0_4
 G w_4_0_4
 L e14_4_0
 E e17_4_0
 G e9_4_1_0
 G w_4_1_0
 G e9_4_1_1
 G w_4_1_1
 G e9_4_1_2
 G w_4_1_2
 G e9_4_1_3
 G w_4_1_3
 G e9_4_1_4
 G w_4_1_4
 L e14_4_1
 E e17_4_1
 E e15_4
 E e18_4
 L e10_0_0_0
 L e10_0_0_1
 L e10_0_0_2
 L e10_0_0_3
 L e10_0_0_4
 L e10_0_1_0
 L e10_0_1_1
 L e10_0_1_2
 L e10_0_1_3
 L e10_0_1_4
 L e10_1_0_0
 L e10_1_0_1
 L e10_1_0_2
 L e10_1_0_3
 L e10_1_0_4
 L e10_1_1_0
 L e10_1_1_1
 L e10_1_1_2
 L e10_1_1_3
 L e10_1_1_4
 L e10_2_0_0
 L e10_2_0_1
 L e10_2_0_2
 L e10_2_0_3
 L e10_2_0_4
 L e10_2_1_0
 L e10_2_1_1
 L e10_2_1_2
 L e10_2_1_3
 L e10_2_1_4
 L e10_3_0_0
 L e10_3_0_1
 L e10_3_0_2
 L e10_3_0_3
 L e10_3_0_4
 L e10_3_1_0
 L e10_3_1_1
 L e10_3_1_2
 L e10_3_1_3
 L e10_3_1_4
 L e10_4_0_0
 L e10_4_0_1
 L e10_4_0_2
 L e10_4_0_3
 L e10_4_0_4
 L e10_4_1_0
 L e10_4_1_1
 L e10_4_1_2
 L e10_4_1_3
 L e10_4_1_4
 G s1_0
 G s2_0
 G s1_1
 G s2_1
 G s1_2
 G s2_2
 G s1_3
 G s2_3
 G s2_4
 L s3_1_1
 L s3_2_1
 L s3_3_1
 L s3_4_1
 G c1
 G c2
 G row_259
COLUMNS
 MARKER 'MARKER' 'INTORG'
 y_0_0 e5_0 5
 y_0_0 e6_0 -5
 y_0_0 e7_0 1
 y_0_0 s1_0 1
 y_0_0 s2_0 3
 y_0_0 c2 1
 y_1_0 e5_1 5
 y_1_0 e6_1 -5
 y_1_0 e7_1 1
 y_1_0 s1_0 -1
 y_1_0 s1_1 1
 y_1_0 s2_1 3
 y_1_0 c2 1
 y_2_0 e5_2 5
 y_2_0 e6_2 -5
 y_2_0 e7_2 1
 y_2_0 s1_1 -1
 y_2_0 s1_2 1
 y_2_0 s2_2 3
 y_2_0 c2 1
 y_3_0 e5_3 5
 y_3_0 e6_3 -5
 y_3_0 e7_3 1
 y_3_0 s1_2 -1
 y_3_0 s1_3 1
 y_3_0 s2_3 3
 y_3_0 c2 1
 y_4_0 e5_4 5
 y_4_0 e6_4 -5
 y_4_0 e7_4 1
 y_4_0 s1_3 -1
 y_4_0 s2_4 3
 y_4_0 c2 1
 r_0 e8t_0 2
 r_0 e8_0_0 1
 r_0 e8_1_0 1
 r_0 s2_0 -1
 r_0 c1 1
 r_1 e8t_1 2
 r_1 e8_0_1 1
 r_1 e8_1_1 1
 r_1 s2_1 -1
 r_1 c1 1
 r_2 e8t_2 2
 r_2 e8_0_2 1
 r_2 e8_1_2 1
 r_2 s2_2 -1
 r_2 c1 1
 r_3 e8t_3 2
 r_3 e8_0_3 1
 r_3 e8_1_3 1
 r_3 s2_3 -1
 r_3 c1 1
 r_4 e8t_4 2
 r_4 e8_0_4 1
 r_4 e8_1_4 1
 r_4 s2_4 -1
 r_4 c1 1
 MARKER 'MARKER' 'INTEND'
 tsp_0 e4_0 -1
 tsp_1 e3_1 1
 tsp_1 e4_1 -1
 tsp_2 e3_2 1
 tsp_2 e4_2 -1
 tsp_3 e3_3 1
 tsp_3 e4_3 -1
 tsp_4 e3_4 1
 tsp_4 e4_4 -1
 tsd_0 e2_0 -1
 tsd_0 e3_1 -1
 tsd_0 e4_0 1
 tsd_1 e2_1 -1
 tsd_1 e3_2 -1
 tsd_1 e4_1 1
 tsd_2 e2_2 -1
 tsd_2 e3_3 -1
 tsd_2 e4_2 1
 tsd_3 e2_3 -1
 tsd_3 e3_4 -1
 tsd_3 e4_3 1
 tsd_4 e2_4 -1
 tsd_4 e4_4 1
 np_0 e4_0 -1
 np_0 e5_0 -1
 np_1 e4_1 -1
 np_1 e5_1 -1
 np_2 e4_2 -1
 np_2 e5_2 -1
 np_3 e4_3 -1
 np_3 e5_3 -1
 np_4 e4_4 -1
 np_4 e5_4 -1
 nd_0 e2_0 -1
 nd_0 e3_1 -1
 nd_0 e8t_0 -1
 nd_1 e2_1 -1
 nd_1 e3_2 -1
 nd_1 e8t_1 -1
 nd_2 e2_2 -1
 nd_2 e3_3 -1
 nd_2 e8t_2 -1
 nd_3 e2_3 -1
 nd_3 e3_4 -1
 nd_3 e8t_3 -1
 nd_4 e2_4 -1
 nd_4 e8t_4 -1
 tmax objective 1
 tmax e2_0 1
 tmax e2_1 1
 tmax e2_2 1
 tmax e2_3 1
 tmax e2_4 1
 MARKER 'MARKER' 'INTORG'
 x_0_0 e14_0_0 -3
 x_0_0 e17_0_0 -1
 x_0_0 e18_0 1
 x_0_0 s3_1_1 -1
 x_0_0 s3_2_1 -1
 x_0_0 s3_3_1 -1
 x_0_0 s3_4_1 -1
 x_0_1 e14_0_1 -3
 x_0_1 e17_0_1 -1
 x_0_1 e18_0 1
 x_1_0 e14_1_0 -2
 x_1_0 e17_1_0 -1
 x_1_0 e18_1 1
 x_1_0 s3_2_1 -1
 x_1_0 s3_3_1 -1
 x_1_0 s3_4_1 -1
 x_1_1 e14_1_1 -2
 x_1_1 e17_1_1 -1
 x_1_1 e18_1 1
 x_1_1 s3_1_1 1
 x_2_0 e14_2_0 -3
 x_2_0 e17_2_0 -1
 x_2_0 e18_2 1
 x_2_0 s3_3_1 -1
 x_2_0 s3_4_1 -1
 x_2_1 e14_2_1 -3
 x_2_1 e17_2_1 -1
 x_2_1 e18_2 1
 x_2_1 s3_2_1 1
 x_3_0 e14_3_0 -2
 x_3_0 e17_3_0 -1
 x_3_0 e18_3 1
 x_3_0 s3_4_1 -1
 x_3_1 e14_3_1 -2
 x_3_1 e17_3_1 -1
 x_3_1 e18_3 1
 x_3_1 s3_3_1 1
 x_4_0 e14_4_0 -2
 x_4_0 e17_4_0 -1
 x_4_0 e18_4 1
 x_4_1 e14_4_1 -2
 x_4_1 e17_4_1 -1
 x_4_1 e18_4 1
 x_4_1 s3_4_1 1
 p_0_0_0 e6_0 1
 p_0_0_0 e16_0_0 1
 p_0_0_0 e9_0_0_0 -1
 p_0_0_0 e17_0_0 1
 p_0_0_0 e10_0_0_0 -1
 p_0_0_1 e6_1 1
 p_0_0_1 e16_0_1 1
 p_0_0_1 e9_0_0_1 -1
 p_0_0_1 e17_0_0 1
 p_0_0_1 e10_0_0_1 -1
 p_0_0_2 e6_2 1
 p_0_0_2 e16_0_2 1
 p_0_0_2 e9_0_0_2 -1
 p_0_0_2 e17_0_0 1
 p_0_0_2 e10_0_0_2 -1
 p_0_0_3 e6_3 1
 p_0_0_3 e16_0_3 1
 p_0_0_3 e9_0_0_3 -1
 p_0_0_3 e17_0_0 1
 p_0_0_3 e10_0_0_3 -1
 p_0_0_4 e6_4 1
 p_0_0_4 e16_0_4 1
 p_0_0_4 e9_0_0_4 -1
 p_0_0_4 e17_0_0 1
 p_0_0_4 e10_0_0_4 -1
 p_0_1_0 e6_0 1
 p_0_1_0 e16_1_0 1
 p_0_1_0 e9_0_1_0 -1
 p_0_1_0 e17_0_1 1
 p_0_1_0 e10_0_1_0 -1
 p_0_1_1 e6_1 1
 p_0_1_1 e16_1_1 1
 p_0_1_1 e9_0_1_1 -1
 p_0_1_1 e17_0_1 1
 p_0_1_1 e10_0_1_1 -1
 p_0_1_2 e6_2 1
 p_0_1_2 e16_1_2 1
 p_0_1_2 e9_0_1_2 -1
 p_0_1_2 e17_0_1 1
 p_0_1_2 e10_0_1_2 -1
 p_0_1_3 e6_3 1
 p_0_1_3 e16_1_3 1
 p_0_1_3 e9_0_1_3 -1
 p_0_1_3 e17_0_1 1
 p_0_1_3 e10_0_1_3 -1
 p_0_1_4 e6_4 1
 p_0_1_4 e16_1_4 1
 p_0_1_4 e9_0_1_4 -1
 p_0_1_4 e17_0_1 1
 p_0_1_4 e10_0_1_4 -1
 p_1_0_0 e6_0 1
 p_1_0_0 e16_0_0 1
 p_1_0_0 e9_1_0_0 -1
 p_1_0_0 e17_1_0 1
 p_1_0_0 e10_1_0_0 -1
 p_1_0_1 e6_1 1
 p_1_0_1 e16_0_1 1
 p_1_0_1 e9_1_0_1 -1
 p_1_0_1 e17_1_0 1
 p_1_0_1 e10_1_0_1 -1
 p_1_0_2 e6_2 1
 p_1_0_2 e16_0_2 1
 p_1_0_2 e9_1_0_2 -1
 p_1_0_2 e17_1_0 1
 p_1_0_2 e10_1_0_2 -1
 p_1_0_3 e6_3 1
 p_1_0_3 e16_0_3 1
 p_1_0_3 e9_1_0_3 -1
 p_1_0_3 e17_1_0 1
 p_1_0_3 e10_1_0_3 -1
 p_1_0_4 e6_4 1
 p_1_0_4 e16_0_4 1
 p_1_0_4 e9_1_0_4 -1
 p_1_0_4 e17_1_0 1
 p_1_0_4 e10_1_0_4 -1
 p_1_1_0 e6_0 1
 p_1_1_0 e16_1_0 1
 p_1_1_0 e9_1_1_0 -1
 p_1_1_0 e17_1_1 1
 p_1_1_0 e10_1_1_0 -1
 p_1_1_1 e6_1 1
 p_1_1_1 e16_1_1 1
 p_1_1_1 e9_1_1_1 -1
 p_1_1_1 e17_1_1 1
 p_1_1_1 e10_1_1_1 -1
 p_1_1_2 e6_2 1
 p_1_1_2 e16_1_2 1
 p_1_1_2 e9_1_1_2 -1
 p_1_1_2 e17_1_1 1
 p_1_1_2 e10_1_1_2 -1
 p_1_1_3 e6_3 1
 p_1_1_3 e16_1_3 1
 p_1_1_3 e9_1_1_3 -1
 p_1_1_3 e17_1_1 1
 p_1_1_3 e10_1_1_3 -1
 p_1_1_4 e6_4 1
 p_1_1_4 e16_1_4 1
 p_1_1_4 e9_1_1_4 -1
 p_1_1_4 e17_1_1 1
 p_1_1_4 e10_1_1_4 -1
 p_2_0_0 e6_0 1
 p_2_0_0 e16_0_0 1
 p_2_0_0 e9_2_0_0 -1
 p_2_0_0 e17_2_0 1
 p_2_0_0 e10_2_0_0 -1
 p_2_0_1 e6_1 1
 p_2_0_1 e16_0_1 1
 p_2_0_1 e9_2_0_1 -1
 p_2_0_1 e17_2_0 1
 p_2_0_1 e10_2_0_1 -1
 p_2_0_2 e6_2 1
 p_2_0_2 e16_0_2 1
 p_2_0_2 e9_2_0_2 -1
 p_2_0_2 e17_2_0 1
 p_2_0_2 e10_2_0_2 -1
 p_2_0_3 e6_3 1
 p_2_0_3 e16_0_3 1
 p_2_0_3 e9_2_0_3 -1
 p_2_0_3 e17_2_0 1
 p_2_0_3 e10_2_0_3 -1
 p_2_0_4 e6_4 1
 p_2_0_4 e16_0_4 1
 p_2_0_4 e9_2_0_4 -1
 p_2_0_4 e17_2_0 1
 p_2_0_4 e10_2_0_4 -1
 p_2_1_0 e6_0 1
 p_2_1_0 e16_1_0 1
 p_2_1_0 e9_2_1_0 -1
 p_2_1_0 e17_2_1 1
 p_2_1_0 e10_2_1_0 -1
 p_2_1_1 e6_1 1
 p_2_1_1 e16_1_1 1
 p_2_1_1 e9_2_1_1 -1
 p_2_1_1 e17_2_1 1
 p_2_1_1 e10_2_1_1 -1
 p_2_1_2 e6_2 1
 p_2_1_2 e16_1_2 1
 p_2_1_2 e9_2_1_2 -1
 p_2_1_2 e17_2_1 1
 p_2_1_2 e10_2_1_2 -1
 p_2_1_3 e6_3 1
 p_2_1_3 e16_1_3 1
 p_2_1_3 e9_2_1_3 -1
 p_2_1_3 e17_2_1 1
 p_2_1_3 e10_2_1_3 -1
 p_2_1_4 e6_4 1
 p_2_1_4 e16_1_4 1
 p_2_1_4 e9_2_1_4 -1
 p_2_1_4 e17_2_1 1
 p_2_1_4 e10_2_1_4 -1
 p_3_0_0 e6_0 1
 p_3_0_0 e16_0_0 1
 p_3_0_0 e9_3_0_0 -1
 p_3_0_0 e17_3_0 1
 p_3_0_0 e10_3_0_0 -1
 p_3_0_1 e6_1 1
 p_3_0_1 e16_0_1 1
 p_3_0_1 e9_3_0_1 -1
 p_3_0_1 e17_3_0 1
 p_3_0_1 e10_3_0_1 -1
 p_3_0_2 e6_2 1
 p_3_0_2 e16_0_2 1
 p_3_0_2 e9_3_0_2 -1
 p_3_0_2 e17_3_0 1
 p_3_0_2 e10_3_0_2 -1
 p_3_0_3 e6_3 1
 p_3_0_3 e16_0_3 1
 p_3_0_3 e9_3_0_3 -1
 p_3_0_3 e17_3_0 1
 p_3_0_3 e10_3_0_3 -1
 p_3_0_4 e6_4 1
 p_3_0_4 e16_0_4 1
 p_3_0_4 e9_3_0_4 -1
 p_3_0_4 e17_3_0 1
 p_3_0_4 e10_3_0_4 -1
 p_3_1_0 e6_0 1
 p_3_1_0 e16_1_0 1
 p_3_1_0 e9_3_1_0 -1
 p_3_1_0 e17_3_1 1
 p_3_1_0 e10_3_1_0 -1
 p_3_1_1 e6_1 1
 p_3_1_1 e16_1_1 1
 p_3_1_1 e9_3_1_1 -1
 p_3_1_1 e17_3_1 1
 p_3_1_1 e10_3_1_1 -1
 p_3_1_2 e6_2 1
 p_3_1_2 e16_1_2 1
 p_3_1_2 e9_3_1_2 -1
 p_3_1_2 e17_3_1 1
 p_3_1_2 e10_3_1_2 -1
 p_3_1_3 e6_3 1
 p_3_1_3 e16_1_3 1
 p_3_1_3 e9_3_1_3 -1
 p_3_1_3 e17_3_1 1
 p_3_1_3 e10_3_1_3 -1
 p_3_1_4 e6_4 1
 p_3_1_4 e16_1_4 1
 p_3_1_4 e9_3_1_4 -1
 p_3_1_4 e17_3_1 1
 p_3_1_4 e10_3_1_4 -1
 p_4_0_0 e6_0 1
 p_4_0_0 e16_0_0 1
 p_4_0_0 e9_4_0_0 -1
 p_4_0_0 e17_4_0 1
 p_4_0_0 e10_4_0_0 -1
 p_4_0_1 e6_1 1
 p_4_0_1 e16_0_1 1
 p_4_0_1 e9_4_0_1 -1
 p_4_0_1 e17_4_0 1
 p_4_0_1 e10_4_0_1 -1
 p_4_0_2 e6_2 1
 p_4_0_2 e16_0_2 1
 p_4_0_2 e9_4_0_2 -1
 p_4_0_2 e17_4_0 1
 p_4_0_2 e10_4_0_2 -1
 p_4_0_3 e6_3 1
 p_4_0_3 e16_0_3 1
 p_4_0_3 e9_4_0_3 -1
 p_4_0_3 e17_4_0 1
 p_4_0_3 e10_4_0_3 -1
 p_4_0_4 e6_4 1
 p_4_0_4 e16_0_4 1
 p_4_0_4 e9_4_0_4 -1
 p_4_0_4 e17_4_0 1
 p_4_0_4 e10_4_0_4 -1
 p_4_1_0 e6_0 1
 p_4_1_0 e16_1_0 1
 p_4_1_0 e9_4_1_0 -1
 p_4_1_0 e17_4_1 1
 p_4_1_0 e10_4_1_0 -1
 p_4_1_1 e6_1 1
 p_4_1_1 e16_1_1 1
 p_4_1_1 e9_4_1_1 -1
 p_4_1_1 e17_4_1 1
 p_4_1_1 e10_4_1_1 -1
 p_4_1_2 e6_2 1
 p_4_1_2 e16_1_2 1
 p_4_1_2 e9_4_1_2 -1
 p_4_1_2 e17_4_1 1
 p_4_1_2 e10_4_1_2 -1
 p_4_1_3 e6_3 1
 p_4_1_3 e16_1_3 1
 p_4_1_3 e9_4_1_3 -1
 p_4_1_3 e17_4_1 1
 p_4_1_3 e10_4_1_3 -1
 p_4_1_4 e6_4 1
 p_4_1_4 e16_1_4 1
 p_4_1_4 e9_4_1_4 -1
 p_4_1_4 e17_4_1 1
 p_4_1_4 e10_4_1_4 -1
 d_0_0_0 e12_0_0 1
 d_0_0_0 e9_0_0_0 1
 d_0_0_0 w_0_0_0 3
 d_0_0_0 e10_0_0_0 1
 d_0_0_0 e10_0_0_1 -1
 d_0_0_1 e12_0_1 1
 d_0_0_1 e9_0_0_1 1
 d_0_0_1 w_0_0_1 3
 d_0_0_1 e10_0_0_1 1
 d_0_0_1 e10_0_0_2 -1
 d_0_0_2 e12_0_2 1
 d_0_0_2 e9_0_0_2 1
 d_0_0_2 w_0_0_2 3
 d_0_0_2 e10_0_0_2 1
 d_0_0_2 e10_0_0_3 -1
 d_0_0_3 e12_0_3 1
 d_0_0_3 e9_0_0_3 1
 d_0_0_3 w_0_0_3 3
 d_0_0_3 e10_0_0_3 1
 d_0_0_3 e10_0_0_4 -1
 d_0_0_4 e12_0_4 1
 d_0_0_4 e9_0_0_4 1
 d_0_0_4 w_0_0_4 3
 d_0_0_4 e10_0_0_4 1
 d_0_1_0 e12_1_0 1
 d_0_1_0 e9_0_1_0 1
 d_0_1_0 w_0_1_0 3
 d_0_1_0 e10_0_1_0 1
 d_0_1_0 e10_0_1_1 -1
 d_0_1_1 e12_1_1 1
 d_0_1_1 e9_0_1_1 1
 d_0_1_1 w_0_1_1 3
 d_0_1_1 e10_0_1_1 1
 d_0_1_1 e10_0_1_2 -1
 d_0_1_2 e12_1_2 1
 d_0_1_2 e9_0_1_2 1
 d_0_1_2 w_0_1_2 3
 d_0_1_2 e10_0_1_2 1
 d_0_1_2 e10_0_1_3 -1
 d_0_1_3 e12_1_3 1
 d_0_1_3 e9_0_1_3 1
 d_0_1_3 w_0_1_3 3
 d_0_1_3 e10_0_1_3 1
 d_0_1_3 e10_0_1_4 -1
 d_0_1_4 e12_1_4 1
 d_0_1_4 e9_0_1_4 1
 d_0_1_4 w_0_1_4 3
 d_0_1_4 e10_0_1_4 1
 d_1_0_0 e12_0_0 1
 d_1_0_0 e9_1_0_0 1
 d_1_0_0 w_1_0_0 2
 d_1_0_0 e10_1_0_0 1
 d_1_0_0 e10_1_0_1 -1
 d_1_0_1 e12_0_1 1
 d_1_0_1 e9_1_0_1 1
 d_1_0_1 w_1_0_1 2
 d_1_0_1 e10_1_0_1 1
 d_1_0_1 e10_1_0_2 -1
 d_1_0_2 e12_0_2 1
 d_1_0_2 e9_1_0_2 1
 d_1_0_2 w_1_0_2 2
 d_1_0_2 e10_1_0_2 1
 d_1_0_2 e10_1_0_3 -1
 d_1_0_3 e12_0_3 1
 d_1_0_3 e9_1_0_3 1
 d_1_0_3 w_1_0_3 2
 d_1_0_3 e10_1_0_3 1
 d_1_0_3 e10_1_0_4 -1
 d_1_0_4 e12_0_4 1
 d_1_0_4 e9_1_0_4 1
 d_1_0_4 w_1_0_4 2
 d_1_0_4 e10_1_0_4 1
 d_1_1_0 e12_1_0 1
 d_1_1_0 e9_1_1_0 1
 d_1_1_0 w_1_1_0 2
 d_1_1_0 e10_1_1_0 1
 d_1_1_0 e10_1_1_1 -1
 d_1_1_1 e12_1_1 1
 d_1_1_1 e9_1_1_1 1
 d_1_1_1 w_1_1_1 2
 d_1_1_1 e10_1_1_1 1
 d_1_1_1 e10_1_1_2 -1
 d_1_1_2 e12_1_2 1
 d_1_1_2 e9_1_1_2 1
 d_1_1_2 w_1_1_2 2
 d_1_1_2 e10_1_1_2 1
 d_1_1_2 e10_1_1_3 -1
 d_1_1_3 e12_1_3 1
 d_1_1_3 e9_1_1_3 1
 d_1_1_3 w_1_1_3 2
 d_1_1_3 e10_1_1_3 1
 d_1_1_3 e10_1_1_4 -1
 d_1_1_4 e12_1_4 1
 d_1_1_4 e9_1_1_4 1
 d_1_1_4 w_1_1_4 2
 d_1_1_4 e10_1_1_4 1
 d_2_0_0 e12_0_0 1
 d_2_0_0 e9_2_0_0 1
 d_2_0_0 w_2_0_0 3
 d_2_0_0 e10_2_0_0 1
 d_2_0_0 e10_2_0_1 -1
 d_2_0_1 e12_0_1 1
 d_2_0_1 e9_2_0_1 1
 d_2_0_1 w_2_0_1 3
 d_2_0_1 e10_2_0_1 1
 d_2_0_1 e10_2_0_2 -1
 d_2_0_2 e12_0_2 1
 d_2_0_2 e9_2_0_2 1
 d_2_0_2 w_2_0_2 3
 d_2_0_2 e10_2_0_2 1
 d_2_0_2 e10_2_0_3 -1
 d_2_0_3 e12_0_3 1
 d_2_0_3 e9_2_0_3 1
 d_2_0_3 w_2_0_3 3
 d_2_0_3 e10_2_0_3 1
 d_2_0_3 e10_2_0_4 -1
 d_2_0_4 e12_0_4 1
 d_2_0_4 e9_2_0_4 1
 d_2_0_4 w_2_0_4 3
 d_2_0_4 e10_2_0_4 1
 d_2_1_0 e12_1_0 1
 d_2_1_0 e9_2_1_0 1
 d_2_1_0 w_2_1_0 3
 d_2_1_0 e10_2_1_0 1
 d_2_1_0 e10_2_1_1 -1
 d_2_1_1 e12_1_1 1
 d_2_1_1 e9_2_1_1 1
 d_2_1_1 w_2_1_1 3
 d_2_1_1 e10_2_1_1 1
 d_2_1_1 e10_2_1_2 -1
 d_2_1_2 e12_1_2 1
 d_2_1_2 e9_2_1_2 1
 d_2_1_2 w_2_1_2 3
 d_2_1_2 e10_2_1_2 1
 d_2_1_2 e10_2_1_3 -1
 d_2_1_3 e12_1_3 1
 d_2_1_3 e9_2_1_3 1
 d_2_1_3 w_2_1_3 3
 d_2_1_3 e10_2_1_3 1
 d_2_1_3 e10_2_1_4 -1
 d_2_1_4 e12_1_4 1
 d_2_1_4 e9_2_1_4 1
 d_2_1_4 w_2_1_4 3
 d_2_1_4 e10_2_1_4 1
 d_3_0_0 e12_0_0 1
 d_3_0_0 e9_3_0_0 1
 d_3_0_0 w_3_0_0 2
 d_3_0_0 e10_3_0_0 1
 d_3_0_0 e10_3_0_1 -1
 d_3_0_1 e12_0_1 1
 d_3_0_1 e9_3_0_1 1
 d_3_0_1 w_3_0_1 2
 d_3_0_1 e10_3_0_1 1
 d_3_0_1 e10_3_0_2 -1
 d_3_0_2 e12_0_2 1
 d_3_0_2 e9_3_0_2 1
 d_3_0_2 w_3_0_2 2
 d_3_0_2 e10_3_0_2 1
 d_3_0_2 e10_3_0_3 -1
 d_3_0_3 e12_0_3 1
 d_3_0_3 e9_3_0_3 1
 d_3_0_3 w_3_0_3 2
 d_3_0_3 e10_3_0_3 1
 d_3_0_3 e10_3_0_4 -1
 d_3_0_4 e12_0_4 1
 d_3_0_4 e9_3_0_4 1
 d_3_0_4 w_3_0_4 2
 d_3_0_4 e10_3_0_4 1
 d_3_1_0 e12_1_0 1
 d_3_1_0 e9_3_1_0 1
 d_3_1_0 w_3_1_0 2
 d_3_1_0 e10_3_1_0 1
 d_3_1_0 e10_3_1_1 -1
 d_3_1_1 e12_1_1 1
 d_3_1_1 e9_3_1_1 1
 d_3_1_1 w_3_1_1 2
 d_3_1_1 e10_3_1_1 1
 d_3_1_1 e10_3_1_2 -1
 d_3_1_2 e12_1_2 1
 d_3_1_2 e9_3_1_2 1
 d_3_1_2 w_3_1_2 2
 d_3_1_2 e10_3_1_2 1
 d_3_1_2 e10_3_1_3 -1
 d_3_1_3 e12_1_3 1
 d_3_1_3 e9_3_1_3 1
 d_3_1_3 w_3_1_3 2
 d_3_1_3 e10_3_1_3 1
 d_3_1_3 e10_3_1_4 -1
 d_3_1_4 e12_1_4 1
 d_3_1_4 e9_3_1_4 1
 d_3_1_4 w_3_1_4 2
 d_3_1_4 e10_3_1_4 1
 d_4_0_0 e12_0_0 1
 d_4_0_0 e9_4_0_0 1
 d_4_0_0 w_4_0_0 2
 d_4_0_0 e10_4_0_0 1
 d_4_0_0 e10_4_0_1 -1
 d_4_0_1 e12_0_1 1
 d_4_0_1 e9_4_0_1 1
 d_4_0_1 w_4_0_1 2
 d_4_0_1 e10_4_0_1 1
 d_4_0_1 e10_4_0_2 -1
 d_4_0_2 e12_0_2 1
 d_4_0_2 e9_4_0_2 1
 d_4_0_2 w_4_0_2 2
 d_4_0_2 e10_4_0_2 1
 d_4_0_2 e10_4_0_3 -1
 d_4_0_3 e12_0_3 1
 d_4_0_3 e9_4_0_3 1
 d_4_0_3 w_4_0_3 2
 d_4_0_3 e10_4_0_3 1
 d_4_0_3 e10_4_0_4 -1
 d_4_0_4 e12_0_4 1
 d_4_0_4 e9_4_0_4 1
 d_4_0_4 w_4_0_4 2
 d_4_0_4 e10_4_0_4 1
 d_4_1_0 e12_1_0 1
 d_4_1_0 e9_4_1_0 1
 d_4_1_0 w_4_1_0 2
 d_4_1_0 e10_4_1_0 1
 d_4_1_0 e10_4_1_1 -1
 d_4_1_1 e12_1_1 1
 d_4_1_1 e9_4_1_1 1
 d_4_1_1 w_4_1_1 2
 d_4_1_1 e10_4_1_1 1
 d_4_1_1 e10_4_1_2 -1
 d_4_1_2 e12_1_2 1
 d_4_1_2 e9_4_1_2 1
 d_4_1_2 w_4_1_2 2
 d_4_1_2 e10_4_1_2 1
 d_4_1_2 e10_4_1_3 -1
 d_4_1_3 e12_1_3 1
 d_4_1_3 e9_4_1_3 1
 d_4_1_3 w_4_1_3 2
 d_4_1_3 e10_4_1_3 1
 d_4_1_3 e10_4_1_4 -1
 d_4_1_4 e12_1_4 1
 d_4_1_4 e9_4_1_4 1
 d_4_1_4 w_4_1_4 2
 d_4_1_4 e10_4_1_4 1
 MARKER 'MARKER' 'INTEND'
 w_0_0_0 e8_0_0 -1
 w_0_0_0 w_0_0_0 -1
 w_0_0_0 e14_0_0 1
 w_0_0_0 e15_0 1
 w_0_0_1 e8_0_1 -1
 w_0_0_1 w_0_0_1 -1
 w_0_0_1 e14_0_0 1
 w_0_0_1 e15_0 1
 w_0_0_2 e8_0_2 -1
 w_0_0_2 w_0_0_2 -1
 w_0_0_2 e14_0_0 1
 w_0_0_2 e15_0 1
 w_0_0_3 e8_0_3 -1
 w_0_0_3 w_0_0_3 -1
 w_0_0_3 e14_0_0 1
 w_0_0_3 e15_0 1
 w_0_0_4 e8_0_4 -1
 w_0_0_4 w_0_0_4 -1
 w_0_0_4 e14_0_0 1
 w_0_0_4 e15_0 1
 w_0_1_0 e8_1_0 -1
 w_0_1_0 w_0_1_0 -1
 w_0_1_0 e14_0_1 1
 w_0_1_0 e15_0 1
 w_0_1_1 e8_1_1 -1
 w_0_1_1 w_0_1_1 -1
 w_0_1_1 e14_0_1 1
 w_0_1_1 e15_0 1
 w_0_1_2 e8_1_2 -1
 w_0_1_2 w_0_1_2 -1
 w_0_1_2 e14_0_1 1
 w_0_1_2 e15_0 1
 w_0_1_3 e8_1_3 -1
 w_0_1_3 w_0_1_3 -1
 w_0_1_3 e14_0_1 1
 w_0_1_3 e15_0 1
 w_0_1_4 e8_1_4 -1
 w_0_1_4 w_0_1_4 -1
 w_0_1_4 e14_0_1 1
 w_0_1_4 e15_0 1
 w_1_0_0 e8_0_0 -1
 w_1_0_0 w_1_0_0 -1
 w_1_0_0 e14_1_0 1
 w_1_0_0 e15_1 1
 w_1_0_1 e8_0_1 -1
 w_1_0_1 w_1_0_1 -1
 w_1_0_1 e14_1_0 1
 w_1_0_1 e15_1 1
 w_1_0_2 e8_0_2 -1
 w_1_0_2 w_1_0_2 -1
 w_1_0_2 e14_1_0 1
 w_1_0_2 e15_1 1
 w_1_0_3 e8_0_3 -1
 w_1_0_3 w_1_0_3 -1
 w_1_0_3 e14_1_0 1
 w_1_0_3 e15_1 1
 w_1_0_4 e8_0_4 -1
 w_1_0_4 w_1_0_4 -1
 w_1_0_4 e14_1_0 1
 w_1_0_4 e15_1 1
 w_1_1_0 e8_1_0 -1
 w_1_1_0 w_1_1_0 -1
 w_1_1_0 e14_1_1 1
 w_1_1_0 e15_1 1
 w_1_1_1 e8_1_1 -1
 w_1_1_1 w_1_1_1 -1
 w_1_1_1 e14_1_1 1
 w_1_1_1 e15_1 1
 w_1_1_2 e8_1_2 -1
 w_1_1_2 w_1_1_2 -1
 w_1_1_2 e14_1_1 1
 w_1_1_2 e15_1 1
 w_1_1_3 e8_1_3 -1
 w_1_1_3 w_1_1_3 -1
 w_1_1_3 e14_1_1 1
 w_1_1_3 e15_1 1
 w_1_1_4 e8_1_4 -1
 w_1_1_4 w_1_1_4 -1
 w_1_1_4 e14_1_1 1
 w_1_1_4 e15_1 1
 w_2_0_0 e8_0_0 -1
 w_2_0_0 w_2_0_0 -1
 w_2_0_0 e14_2_0 1
 w_2_0_0 e15_2 1
 w_2_0_1 e8_0_1 -1
 w_2_0_1 w_2_0_1 -1
 w_2_0_1 e14_2_0 1
 w_2_0_1 e15_2 1
 w_2_0_2 e8_0_2 -1
 w_2_0_2 w_2_0_2 -1
 w_2_0_2 e14_2_0 1
 w_2_0_2 e15_2 1
 w_2_0_3 e8_0_3 -1
 w_2_0_3 w_2_0_3 -1
 w_2_0_3 e14_2_0 1
 w_2_0_3 e15_2 1
 w_2_0_4 e8_0_4 -1
 w_2_0_4 w_2_0_4 -1
 w_2_0_4 e14_2_0 1
 w_2_0_4 e15_2 1
 w_2_1_0 e8_1_0 -1
 w_2_1_0 w_2_1_0 -1
 w_2_1_0 e14_2_1 1
 w_2_1_0 e15_2 1
 w_2_1_1 e8_1_1 -1
 w_2_1_1 w_2_1_1 -1
 w_2_1_1 e14_2_1 1
 w_2_1_1 e15_2 1
 w_2_1_2 e8_1_2 -1
 w_2_1_2 w_2_1_2 -1
 w_2_1_2 e14_2_1 1
 w_2_1_2 e15_2 1
 w_2_1_3 e8_1_3 -1
 w_2_1_3 w_2_1_3 -1
 w_2_1_3 e14_2_1 1
 w_2_1_3 e15_2 1
 w_2_1_4 e8_1_4 -1
 w_2_1_4 w_2_1_4 -1
 w_2_1_4 e14_2_1 1
 w_2_1_4 e15_2 1
 w_3_0_0 e8_0_0 -1
 w_3_0_0 w_3_0_0 -1
 w_3_0_0 e14_3_0 1
 w_3_0_0 e15_3 1
 w_3_0_1 e8_0_1 -1
 w_3_0_1 w_3_0_1 -1
 w_3_0_1 e14_3_0 1
 w_3_0_1 e15_3 1
 w_3_0_2 e8_0_2 -1
 w_3_0_2 w_3_0_2 -1
 w_3_0_2 e14_3_0 1
 w_3_0_2 e15_3 1
 w_3_0_3 e8_0_3 -1
 w_3_0_3 w_3_0_3 -1
 w_3_0_3 e14_3_0 1
 w_3_0_3 e15_3 1
 w_3_0_4 e8_0_4 -1
 w_3_0_4 w_3_0_4 -1
 w_3_0_4 e14_3_0 1
 w_3_0_4 e15_3 1
 w_3_1_0 e8_1_0 -1
 w_3_1_0 w_3_1_0 -1
 w_3_1_0 e14_3_1 1
 w_3_1_0 e15_3 1
 w_3_1_1 e8_1_1 -1
 w_3_1_1 w_3_1_1 -1
 w_3_1_1 e14_3_1 1
 w_3_1_1 e15_3 1
 w_3_1_2 e8_1_2 -1
 w_3_1_2 w_3_1_2 -1
 w_3_1_2 e14_3_1 1
 w_3_1_2 e15_3 1
 w_3_1_3 e8_1_3 -1
 w_3_1_3 w_3_1_3 -1
 w_3_1_3 e14_3_1 1
 w_3_1_3 e15_3 1
 w_3_1_4 e8_1_4 -1
 w_3_1_4 w_3_1_4 -1
 w_3_1_4 e14_3_1 1
 w_3_1_4 e15_3 1
 w_4_0_0 e8_0_0 -1
 w_4_0_0 w_4_0_0 -1
 w_4_0_0 e14_4_0 1
 w_4_0_0 e15_4 1
 w_4_0_1 e8_0_1 -1
 w_4_0_1 w_4_0_1 -1
 w_4_0_1 e14_4_0 1
 w_4_0_1 e15_4 1
 w_4_0_2 e8_0_2 -1
 w_4_0_2 w_4_0_2 -1
 w_4_0_2 e14_4_0 1
 w_4_0_2 e15_4 1
 w_4_0_3 e8_0_3 -1
 w_4_0_3 w_4_0_3 -1
 w_4_0_3 e14_4_0 1
 w_4_0_3 e15_4 1
 w_4_0_4 e8_0_4 -1
 w_4_0_4 w_4_0_4 -1
 w_4_0_4 e14_4_0 1
 w_4_0_4 e15_4 1
 w_4_1_0 e8_1_0 -1
 w_4_1_0 w_4_1_0 -1
 w_4_1_0 e14_4_1 1
 w_4_1_0 e15_4 1
 w_4_1_1 e8_1_1 -1
 w_4_1_1 w_4_1_1 -1
 w_4_1_1 e14_4_1 1
 w_4_1_1 e15_4 1
 w_4_1_2 e8_1_2 -1
 w_4_1_2 w_4_1_2 -1
 w_4_1_2 e14_4_1 1
 w_4_1_2 e15_4 1
 w_4_1_3 e8_1_3 -1
 w_4_1_3 w_4_1_3 -1
 w_4_1_3 e14_4_1 1
 w_4_1_3 e15_4 1
 w_4_1_4 e8_1_4 -1
 w_4_1_4 w_4_1_4 -1
 w_4_1_4 e14_4_1 1
 w_4_1_4 e15_4 1
 zz objective 1
 zz row_259 1
 constant objective 0
RHS
 RHS e7_0 1
 RHS e12_0_0 1
 RHS e16_0_0 1
 RHS e12_1_0 1
 RHS e16_1_0 1
 RHS e7_1 1
 RHS e12_0_1 1
 RHS e16_0_1 1
 RHS e12_1_1 1
 RHS e16_1_1 1
 RHS e7_2 1
 RHS e12_0_2 1
 RHS e16_0_2 1
 RHS e12_1_2 1
 RHS e16_1_2 1
 RHS e7_3 1
 RHS e12_0_3 1
 RHS e16_0_3 1
 RHS e12_1_3 1
 RHS e16_1_3 1
 RHS e7_4 1
 RHS e12_0_4 1
 RHS e16_0_4 1
 RHS e12_1_4 1
 RHS e16_1_4 1
 RHS e15_0 3
 RHS e18_0 1
 RHS e15_1 2
 RHS e18_1 1
 RHS e15_2 3
 RHS e18_2 1
 RHS e15_3 2
 RHS e18_3 1
 RHS e15_4 2
 RHS e18_4 1
 RHS c1 6
 RHS c2 3
 RHS row_259 -7.5
BOUNDS
 FX BOUND constant 1
 LO BOUND y_0_0 0
 UP BOUND y_0_0 1
 LO BOUND y_1_0 0
 UP BOUND y_1_0 1
 LO BOUND y_2_0 0
 UP BOUND y_2_0 1
 LO BOUND y_3_0 0
 UP BOUND y_3_0 1
 LO BOUND y_4_0 0
 UP BOUND y_4_0 1
 LO BOUND r_0 0
 UP BOUND r_0 3
 LO BOUND r_1 0
 UP BOUND r_1 3
 LO BOUND r_2 0
 UP BOUND r_2 3
 LO BOUND r_3 0
 UP BOUND r_3 3
 LO BOUND r_4 0
 UP BOUND r_4 3
 LO BOUND tsp_0 0
 UP BOUND tsp_0 49
 LO BOUND tsp_1 0
 UP BOUND tsp_1 49
 LO BOUND tsp_2 0
 UP BOUND tsp_2 49
 LO BOUND tsp_3 0
 UP BOUND tsp_3 49
 LO BOUND tsp_4 0
 UP BOUND tsp_4 49
 LO BOUND tsd_0 0
 UP BOUND tsd_0 49
 LO BOUND tsd_1 0
 UP BOUND tsd_1 49
 LO BOUND tsd_2 0
 UP BOUND tsd_2 49
 LO BOUND tsd_3 0
 UP BOUND tsd_3 49
 LO BOUND tsd_4 0
 UP BOUND tsd_4 49
 LO BOUND np_0 0
 UP BOUND np_0 49
 LO BOUND np_1 0
 UP BOUND np_1 49
 LO BOUND np_2 0
 UP BOUND np_2 49
 LO BOUND np_3 0
 UP BOUND np_3 49
 LO BOUND np_4 0
 UP BOUND np_4 49
 LO BOUND nd_0 0
 UP BOUND nd_0 49
 LO BOUND nd_1 0
 UP BOUND nd_1 49
 LO BOUND nd_2 0
 UP BOUND nd_2 49
 LO BOUND nd_3 0
 UP BOUND nd_3 49
 LO BOUND nd_4 0
 UP BOUND nd_4 49
 LO BOUND tmax 0
 UP BOUND tmax 49
 LO BOUND x_0_0 0
 UP BOUND x_0_0 1
 LO BOUND x_0_1 0
 UP BOUND x_0_1 0
 LO BOUND x_1_0 0
 UP BOUND x_1_0 1
 LO BOUND x_1_1 0
 UP BOUND x_1_1 1
 LO BOUND x_2_0 0
 UP BOUND x_2_0 1
 LO BOUND x_2_1 0
 UP BOUND x_2_1 1
 LO BOUND x_3_0 0
 UP BOUND x_3_0 1
 LO BOUND x_3_1 0
 UP BOUND x_3_1 1
 LO BOUND x_4_0 0
 UP BOUND x_4_0 1
 LO BOUND x_4_1 0
 UP BOUND x_4_1 1
 LO BOUND p_0_0_0 0
 UP BOUND p_0_0_0 1
 LO BOUND p_0_0_1 0
 UP BOUND p_0_0_1 1
 LO BOUND p_0_0_2 0
 UP BOUND p_0_0_2 1
 LO BOUND p_0_0_3 0
 UP BOUND p_0_0_3 1
 LO BOUND p_0_0_4 0
 UP BOUND p_0_0_4 1
 LO BOUND p_0_1_0 0
 UP BOUND p_0_1_0 0
 LO BOUND p_0_1_1 0
 UP BOUND p_0_1_1 0
 LO BOUND p_0_1_2 0
 UP BOUND p_0_1_2 0
 LO BOUND p_0_1_3 0
 UP BOUND p_0_1_3 0
 LO BOUND p_0_1_4 0
 UP BOUND p_0_1_4 0
 LO BOUND p_1_0_0 0
 UP BOUND p_1_0_0 1
 LO BOUND p_1_0_1 0
 UP BOUND p_1_0_1 1
 LO BOUND p_1_0_2 0
 UP BOUND p_1_0_2 1
 LO BOUND p_1_0_3 0
 UP BOUND p_1_0_3 1
 LO BOUND p_1_0_4 0
 UP BOUND p_1_0_4 1
 LO BOUND p_1_1_0 0
 UP BOUND p_1_1_0 1
 LO BOUND p_1_1_1 0
 UP BOUND p_1_1_1 1
 LO BOUND p_1_1_2 0
 UP BOUND p_1_1_2 1
 LO BOUND p_1_1_3 0
 UP BOUND p_1_1_3 1
 LO BOUND p_1_1_4 0
 UP BOUND p_1_1_4 1
 LO BOUND p_2_0_0 0
 UP BOUND p_2_0_0 1
 LO BOUND p_2_0_1 0
 UP BOUND p_2_0_1 1
 LO BOUND p_2_0_2 0
 UP BOUND p_2_0_2 1
 LO BOUND p_2_0_3 0
 UP BOUND p_2_0_3 1
 LO BOUND p_2_0_4 0
 UP BOUND p_2_0_4 1
 LO BOUND p_2_1_0 0
 UP BOUND p_2_1_0 1
 LO BOUND p_2_1_1 0
 UP BOUND p_2_1_1 1
 LO BOUND p_2_1_2 0
 UP BOUND p_2_1_2 1
 LO BOUND p_2_1_3 0
 UP BOUND p_2_1_3 1
 LO BOUND p_2_1_4 0
 UP BOUND p_2_1_4 1
 LO BOUND p_3_0_0 0
 UP BOUND p_3_0_0 1
 LO BOUND p_3_0_1 0
 UP BOUND p_3_0_1 1
 LO BOUND p_3_0_2 0
 UP BOUND p_3_0_2 1
 LO BOUND p_3_0_3 0
 UP BOUND p_3_0_3 1
 LO BOUND p_3_0_4 0
 UP BOUND p_3_0_4 1
 LO BOUND p_3_1_0 0
 UP BOUND p_3_1_0 1
 LO BOUND p_3_1_1 0
 UP BOUND p_3_1_1 1
 LO BOUND p_3_1_2 0
 UP BOUND p_3_1_2 1
 LO BOUND p_3_1_3 0
 UP BOUND p_3_1_3 1
 LO BOUND p_3_1_4 0
 UP BOUND p_3_1_4 1
 LO BOUND p_4_0_0 0
 UP BOUND p_4_0_0 1
 LO BOUND p_4_0_1 0
 UP BOUND p_4_0_1 1
 LO BOUND p_4_0_2 0
 UP BOUND p_4_0_2 1
 LO BOUND p_4_0_3 0
 UP BOUND p_4_0_3 1
 LO BOUND p_4_0_4 0
 UP BOUND p_4_0_4 1
 LO BOUND p_4_1_0 0
 UP BOUND p_4_1_0 1
 LO BOUND p_4_1_1 0
 UP BOUND p_4_1_1 1
 LO BOUND p_4_1_2 0
 UP BOUND p_4_1_2 1
 LO BOUND p_4_1_3 0
 UP BOUND p_4_1_3 1
 LO BOUND p_4_1_4 0
 UP BOUND p_4_1_4 1
 LO BOUND d_0_0_0 0
 UP BOUND d_0_0_0 1
 LO BOUND d_0_0_1 0
 UP BOUND d_0_0_1 1
 LO BOUND d_0_0_2 0
 UP BOUND d_0_0_2 1
 LO BOUND d_0_0_3 0
 UP BOUND d_0_0_3 1
 LO BOUND d_0_0_4 0
 UP BOUND d_0_0_4 1
 LO BOUND d_0_1_0 0
 UP BOUND d_0_1_0 0
 LO BOUND d_0_1_1 0
 UP BOUND d_0_1_1 0
 LO BOUND d_0_1_2 0
 UP BOUND d_0_1_2 0
 LO BOUND d_0_1_3 0
 UP BOUND d_0_1_3 0
 LO BOUND d_0_1_4 0
 UP BOUND d_0_1_4 0
 LO BOUND d_1_0_0 0
 UP BOUND d_1_0_0 1
 LO BOUND d_1_0_1 0
 UP BOUND d_1_0_1 1
 LO BOUND d_1_0_2 0
 UP BOUND d_1_0_2 1
 LO BOUND d_1_0_3 0
 UP BOUND d_1_0_3 1
 LO BOUND d_1_0_4 0
 UP BOUND d_1_0_4 1
 LO BOUND d_1_1_0 0
 UP BOUND d_1_1_0 1
 LO BOUND d_1_1_1 0
 UP BOUND d_1_1_1 1
 LO BOUND d_1_1_2 0
 UP BOUND d_1_1_2 1
 LO BOUND d_1_1_3 0
 UP BOUND d_1_1_3 1
 LO BOUND d_1_1_4 0
 UP BOUND d_1_1_4 1
 LO BOUND d_2_0_0 0
 UP BOUND d_2_0_0 1
 LO BOUND d_2_0_1 0
 UP BOUND d_2_0_1 1
 LO BOUND d_2_0_2 0
 UP BOUND d_2_0_2 1
 LO BOUND d_2_0_3 0
 UP BOUND d_2_0_3 1
 LO BOUND d_2_0_4 0
 UP BOUND d_2_0_4 1
 LO BOUND d_2_1_0 0
 UP BOUND d_2_1_0 1
 LO BOUND d_2_1_1 0
 UP BOUND d_2_1_1 1
 LO BOUND d_2_1_2 0
 UP BOUND d_2_1_2 1
 LO BOUND d_2_1_3 0
 UP BOUND d_2_1_3 1
 LO BOUND d_2_1_4 0
 UP BOUND d_2_1_4 1
 LO BOUND d_3_0_0 0
 UP BOUND d_3_0_0 1
 LO BOUND d_3_0_1 0
 UP BOUND d_3_0_1 1
 LO BOUND d_3_0_2 0
 UP BOUND d_3_0_2 1
 LO BOUND d_3_0_3 0
 UP BOUND d_3_0_3 1
 LO BOUND d_3_0_4 0
 UP BOUND d_3_0_4 1
 LO BOUND d_3_1_0 0
 UP BOUND d_3_1_0 1
 LO BOUND d_3_1_1 0
 UP BOUND d_3_1_1 1
 LO BOUND d_3_1_2 0
 UP BOUND d_3_1_2 1
 LO BOUND d_3_1_3 0
 UP BOUND d_3_1_3 1
 LO BOUND d_3_1_4 0
 UP BOUND d_3_1_4 1
 LO BOUND d_4_0_0 0
 UP BOUND d_4_0_0 1
 LO BOUND d_4_0_1 0
 UP BOUND d_4_0_1 1
 LO BOUND d_4_0_2 0
 UP BOUND d_4_0_2 1
 LO BOUND d_4_0_3 0
 UP BOUND d_4_0_3 1
 LO BOUND d_4_0_4 0
 UP BOUND d_4_0_4 1
 LO BOUND d_4_1_0 0
 UP BOUND d_4_1_0 1
 LO BOUND d_4_1_1 0
 UP BOUND d_4_1_1 1
 LO BOUND d_4_1_2 0
 UP BOUND d_4_1_2 1
 LO BOUND d_4_1_3 0
 UP BOUND d_4_1_3 1
 LO BOUND d_4_1_4 0
 UP BOUND d_4_1_4 1
 LO BOUND w_0_0_0 0
 UP BOUND w_0_0_0 3
 LO BOUND w_0_0_1 0
 UP BOUND w_0_0_1 3
 LO BOUND w_0_0_2 0
 UP BOUND w_0_0_2 3
 LO BOUND w_0_0_3 0
 UP BOUND w_0_0_3 3
 LO BOUND w_0_0_4 0
 UP BOUND w_0_0_4 3
 LO BOUND w_0_1_0 0
 UP BOUND w_0_1_0 0
 LO BOUND w_0_1_1 0
 UP BOUND w_0_1_1 0
 LO BOUND w_0_1_2 0
 UP BOUND w_0_1_2 0
 LO BOUND w_0_1_3 0
 UP BOUND w_0_1_3 0
 LO BOUND w_0_1_4 0
 UP BOUND w_0_1_4 0
 LO BOUND w_1_0_0 0
 UP BOUND w_1_0_0 2
 LO BOUND w_1_0_1 0
 UP BOUND w_1_0_1 2
 LO BOUND w_1_0_2 0
 UP BOUND w_1_0_2 2
 LO BOUND w_1_0_3 0
 UP BOUND w_1_0_3 2
 LO BOUND w_1_0_4 0
 UP BOUND w_1_0_4 2
 LO BOUND w_1_1_0 0
 UP BOUND w_1_1_0 2
 LO BOUND w_1_1_1 0
 UP BOUND w_1_1_1 2
 LO BOUND w_1_1_2 0
 UP BOUND w_1_1_2 2
 LO BOUND w_1_1_3 0
 UP BOUND w_1_1_3 2
 LO BOUND w_1_1_4 0
 UP BOUND w_1_1_4 2
 LO BOUND w_2_0_0 0
 UP BOUND w_2_0_0 3
 LO BOUND w_2_0_1 0
 UP BOUND w_2_0_1 3
 LO BOUND w_2_0_2 0
 UP BOUND w_2_0_2 3
 LO BOUND w_2_0_3 0
 UP BOUND w_2_0_3 3
 LO BOUND w_2_0_4 0
 UP BOUND w_2_0_4 3
 LO BOUND w_2_1_0 0
 UP BOUND w_2_1_0 3
 LO BOUND w_2_1_1 0
 UP BOUND w_2_1_1 3
 LO BOUND w_2_1_2 0
 UP BOUND w_2_1_2 3
 LO BOUND w_2_1_3 0
 UP BOUND w_2_1_3 3
 LO BOUND w_2_1_4 0
 UP BOUND w_2_1_4 3
 LO BOUND w_3_0_0 0
 UP BOUND w_3_0_0 2
 LO BOUND w_3_0_1 0
 UP BOUND w_3_0_1 2
 LO BOUND w_3_0_2 0
 UP BOUND w_3_0_2 2
 LO BOUND w_3_0_3 0
 UP BOUND w_3_0_3 2
 LO BOUND w_3_0_4 0
 UP BOUND w_3_0_4 2
 LO BOUND w_3_1_0 0
 UP BOUND w_3_1_0 2
 LO BOUND w_3_1_1 0
 UP BOUND w_3_1_1 2
 LO BOUND w_3_1_2 0
 UP BOUND w_3_1_2 2
 LO BOUND w_3_1_3 0
 UP BOUND w_3_1_3 2
 LO BOUND w_3_1_4 0
 UP BOUND w_3_1_4 2
 LO BOUND w_4_0_0 0
 UP BOUND w_4_0_0 2
 LO BOUND w_4_0_1 0
 UP BOUND w_4_0_1 2
 LO BOUND w_4_0_2 0
 UP BOUND w_4_0_2 2
 LO BOUND w_4_0_3 0
 UP BOUND w_4_0_3 2
 LO BOUND w_4_0_4 0
 UP BOUND w_4_0_4 2
 LO BOUND w_4_1_0 0
 UP BOUND w_4_1_0 2
 LO BOUND w_4_1_1 0
 UP BOUND w_4_1_1 2
 LO BOUND w_4_1_2 0
 UP BOUND w_4_1_2 2
 LO BOUND w_4_1_3 0
 UP BOUND w_4_1_3 2
 LO BOUND w_4_1_4 0
 UP BOUND w_4_1_4 2
 MI BOUND zz
 UP BOUND zz -2
ENDATA
