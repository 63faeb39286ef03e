# What R does on both allocators, to nine digits.
options(digits = 9, width = 120)
set.seed(42)
m <- matrix(rnorm(250 * 250), 250)
s <- crossprod(m)
print(c(sum(solve(s + diag(250))), determinant(s)$modulus, sum(svd(m)$d)))
d <- data.frame(x = rnorm(20000), g = factor(sample(letters, 20000, TRUE)))
d$y <- 3 * d$x + as.integer(d$g) + rnorm(20000)
print(coef(lm(y ~ x + g, d)))
print(aggregate(y ~ g, d, mean))
print(quantile(sort(d$y), c(.01, .1, .5, .9, .99)))
words <- vapply(1:40000, function(i) paste(sample(letters, 1 + i %% 9, TRUE), collapse = ""), "")
print(head(sort(table(substr(words, 1, 2)), decreasing = TRUE), 8))
print(sum(nchar(gsub("[aeiou]+", "-", words))))
f <- function(n) if (n < 2) n else f(n - 1) + f(n - 2)
print(f(21))
grown <- list()
for (i in 1:5000) {
  grown[[i]] <- numeric(i)
  if (i %% 500 == 0) {
    grown[seq(1, i, 2)] <- list(NULL)
    invisible(gc())
  }
}
print(sum(lengths(grown)))
print(sum(Re(fft(rnorm(2^16)))), digits = 6)
print(optim(c(-1.2, 1), function(p) 100 * (p[2] - p[1]^2)^2 + (1 - p[1])^2, method = "BFGS")$par, digits = 5)
