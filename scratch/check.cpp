#include "nn/winograd/kernels.h"
#include <chrono>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>
using namespace trainer::nn::winograd;
template <class T> struct Buf { std::vector<T> v; };
static std::mt19937 rng(1);
template <class T> std::vector<T> rnd(size_t n) { std::normal_distribution<double> d; std::vector<T> v(n); for (auto& x : v) x = (T)d(rng); return v; }
template <class T> double check(Tile tile, Shape s, int64_t T_) {
  auto x = rnd<T>(s.num_images*s.height*s.width*s.in_channels), w = rnd<T>(9*s.in_channels*s.out_channels), dy = rnd<T>(s.num_images*s.height*s.width*s.out_channels);
  auto at=[&](const std::vector<T>&t,int64_t C,int64_t n,int64_t y,int64_t xx,int64_t c)->double{ if(y<0||y>=s.height||xx<0||xx>=s.width) return 0; return t[((n*s.height+y)*s.width+xx)*C+c];};
  std::vector<double> y0(dy.size()), dx0(x.size()), dw0(w.size());
  for(int64_t n=0;n<s.num_images;n++)for(int64_t h=0;h<s.height;h++)for(int64_t q=0;q<s.width;q++){
    for(int64_t k=0;k<s.out_channels;k++){double a=0;for(int r=0;r<3;r++)for(int c=0;c<3;c++)for(int64_t i=0;i<s.in_channels;i++){a+=at(x,s.in_channels,n,h+r-1,q+c-1,i)*w[(k*9+r*3+c)*s.in_channels+i]; dw0[(k*9+r*3+c)*s.in_channels+i]+=at(x,s.in_channels,n,h+r-1,q+c-1,i)*dy[((n*s.height+h)*s.width+q)*s.out_channels+k];} y0[((n*s.height+h)*s.width+q)*s.out_channels+k]=a;}
    for(int64_t i=0;i<s.in_channels;i++){double a=0;for(int r=0;r<3;r++)for(int c=0;c<3;c++)for(int64_t k=0;k<s.out_channels;k++)a+=at(dy,s.out_channels,n,h-r+1,q-c+1,k)*w[(k*9+r*3+c)*s.in_channels+i];dx0[((n*s.height+h)*s.width+q)*s.in_channels+i]=a;}
  }
  auto run=[&](Shape sh,const std::vector<T>&in,bool rev,size_t outn){ std::vector<T> U(num_positions(tile)*sh.in_channels*sh.out_channels), o(outn, NAN), ws(convolve_workspace(tile,sh,T_)); transform_weights(tile,sh,w.data(),rev,U.data(),0,sh.in_channels); for(int64_t b=0;b<num_tiles(sh,tile);b+=T_) convolve(tile,sh,in.data(),U.data(),o.data(),b,std::min(b+T_,num_tiles(sh,tile)),ws.data()); return o;};
  auto err=[](const auto&a,const auto&b){double e=0,m=0;for(size_t i=0;i<a.size();i++){e=std::max(e,std::isnan((double)a[i])?1e9:std::fabs(a[i]-b[i]));m=std::max(m,std::fabs(b[i]));}return e/m;};
  double e=err(run(s,x,false,dy.size()),y0); e=std::max(e,err(run(reversed(s),dy,true,x.size()),dx0));
  std::vector<T> sums(2*num_positions(tile)*s.in_channels*s.out_channels), ws(weight_workspace(tile,s,T_)), dw(w.size());
  int64_t nt=num_tiles(s,tile); int64_t i=0; for(int64_t b=0;b<nt;b+=T_,i++) add_weight_products(tile,s,x.data(),dy.data(),sums.data()+(i%2)*(sums.size()/2),b,std::min(b+T_,nt),ws.data());
  finish_weight_gradient(tile,s,sums.data(),2,dw.data(),0,s.out_channels); e=std::max(e,err(dw,dw0)); return e;
}
void bench(Tile tile,int64_t C,int64_t H,int64_t N,int64_t T_){ Shape s{N,H,H,C,C}; auto x=rnd<float>(N*H*H*C), w=rnd<float>(9*C*C), dy=rnd<float>(N*H*H*C); std::vector<float> U(num_positions(tile)*C*C),y(dy.size()),ws(std::max(convolve_workspace(tile,s,T_),weight_workspace(tile,s,T_))),sums(num_positions(tile)*C*C),dw(w.size()); int64_t nt=num_tiles(s,tile); double tf=1e9,tw=1e9; for(int r=0;r<5;r++){auto t0=std::chrono::steady_clock::now(); transform_weights(tile,s,w.data(),false,U.data(),0,C); for(int64_t b=0;b<nt;b+=T_)convolve(tile,s,x.data(),U.data(),y.data(),b,std::min(b+T_,nt),ws.data()); auto t1=std::chrono::steady_clock::now(); std::fill(sums.begin(),sums.end(),0); for(int64_t b=0;b<nt;b+=T_)add_weight_products(tile,s,x.data(),dy.data(),sums.data(),b,std::min(b+T_,nt),ws.data()); finish_weight_gradient(tile,s,sums.data(),1,dw.data(),0,C); auto t2=std::chrono::steady_clock::now(); tf=std::min(tf,std::chrono::duration<double>(t1-t0).count());tw=std::min(tw,std::chrono::duration<double>(t2-t1).count());} std::printf("F%d %ld ch %ld^2 T=%ld: forward %.1f ms, weights %.1f ms\n",(int)tile,C,H,T_,tf*1e3,tw*1e3); std::fflush(stdout);}
int main(int c,char**v){ for(Tile t:{Tile::k2,Tile::k4})for(Shape s:{Shape{2,8,8,16,16},Shape{2,5,7,8,24},Shape{1,4,4,32,48},Shape{3,9,3,40,8}}){ std::printf("F%d %ld %ldx%ld %ld->%ld: float %.2e double %.2e\n",(int)t,s.num_images,s.height,s.width,s.in_channels,s.out_channels,check<float>(t,s,5),check<double>(t,s,7)); }
 if(c>1){ for(Tile t:{Tile::k2,Tile::k4})for(auto[C,H]:{std::pair{16,32},{32,16},{64,8},{64,32},{128,16},{256,8},{512,4}})for(int64_t T_:{24,48,96}) bench(t,C,H,128,T_);} }
