import numpy as np
mask = np.tril(np.ones((4, 4)))
